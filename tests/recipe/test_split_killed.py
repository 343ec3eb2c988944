"""A split that is killed without warning, at whatever moment, leaves whole shards or none."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from paddlejob.recipe import manifest, split
from recipe.line_files import run_split, shard, write

SPLIT = "import sys; from paddlejob.cli.data import command; command()"


@pytest.mark.parametrize(
    "moment", ["run-*/shard-0/data/train.txt", "run-*/shard-0/manifest.json", "../0/manifest.json"]
)
def test_killed(tmp_path, moment):
    train = write(tmp_path / "train.txt", b"one sample of many\n" * 500_000)
    job = tmp_path / "job"
    command = [sys.executable, "-c", SPLIT, "split", str(train), "--out-dir", str(job), "--split-count", "3"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not list((job / ".split").glob(moment)) and process.poll() is None:
            time.sleep(0.0005)
        process.kill()
    assert all(manifest.is_whole(job, one) for one in split.shards_present(job))
    run_split(job, 3, train)
    assert b"".join(shard(job, index) for index in range(3)) == train.read_bytes()
    assert sorted(path.name for path in (job / ".split").iterdir()) == ["lock"]
