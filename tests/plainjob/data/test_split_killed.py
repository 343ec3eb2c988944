"""A split killed by the kernel, at a moment between two steps, leaves whole shards or none.

test_split_interrupted.py dies at every operation, but inside this process; here a real process dies.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from paddlejob.plainjob.data import manifest, split
from plainjob.line_files import lines, run_split, shard, write

pytestmark = pytest.mark.slow

KILLED_AT = """
import os, signal, sys
from paddlejob.cli.setup.data import command
from paddlejob.plainjob.data import split, writer

def die(*_arguments, **_options):
    os.kill(os.getpid(), signal.SIGKILL)

split.WRITERS = 1
{patch} = die
command(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("moment", "whole"),
    [
        pytest.param("writer.Writer.copy", 0, id="before any data"),
        pytest.param("writer._Output.finish", 0, id="with a file that is not on the disk"),
        pytest.param("writer.ShardDraft.commit", 0, id="with a shard that has no manifest"),
        pytest.param("writer.set_aside", 0, id="with a shard that is not in its place"),
        pytest.param("split._publish", 3, id="with all shards and no manifest"),
    ],
)
def test_killed(tmp_path, moment, whole):
    train = write(tmp_path / "train.txt", lines(1000))
    job = tmp_path / "job"
    arguments = ["split", str(train), "--out-dir", str(job), "--split-count", "3", "--quiet"]
    program = KILLED_AT.format(patch=moment)
    ended = subprocess.run([sys.executable, "-c", program, *arguments], check=False, timeout=60)
    assert ended.returncode == -9
    assert len(split.shards_present(job)) == whole
    assert all(manifest.is_whole(job, one) for one in split.shards_present(job))
    assert run_split(job, 3, train).written == tuple(range(whole, 3))
    assert b"".join(shard(job, index) for index in range(3)) == train.read_bytes()
    assert sorted(path.name for path in (job / ".split").iterdir()) == ["lock"]
