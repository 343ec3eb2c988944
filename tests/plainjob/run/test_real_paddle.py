"""The documented way on a laptop: real Paddle, the whole census, three nodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
PADDLEJOB = [sys.executable, "-c", "from paddlejob.cli.main import main; main()"]


def script(name, *arguments):
    command = [sys.executable, str(ROOT / "scripts" / name), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@pytest.fixture
def job(tmp_path):
    census = script("example_data.py", "wide_and_deep")
    split = ["data", "split", census, "--out-dir", str(tmp_path / "census"), "--split-count", "3", "--quiet"]
    subprocess.run([*PADDLEJOB, *split, "--config-dir", str(ROOT / "examples/wide_and_deep")], check=True)
    return tmp_path / "census"


def train(job, epochs):
    python = script("paddle_env.py", "2.6.2")
    variables = {"JOB_PATH": str(job.parent), "JOB_NAME": job.name, "TRAIN_CONFIG_DIR": "wide_and_deep"}
    return subprocess.run(
        [*PADDLEJOB, "start", "--local", "3", "--program", f"{python} train.py"],
        env={**os.environ, **variables, "CONF_PADDLE_PORT": "16000", "EPOCHS": str(epochs)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_three_nodes_train_and_a_second_run_resumes(job):
    first = train(job, epochs=1)
    assert first.returncode == 0, first.stderr[-4000:]
    auc, rows = re.search(r"^\[0\] done auc (\S+) test_rows (\d+)", first.stdout, re.MULTILINE).groups()
    assert (float(auc) > 0.92, rows) == (True, "99762")
    assert (job / "output" / "pass-00001" / "done").is_file()
    assert all((job / "output" / f"node_{node}" / "server.log").stat().st_size for node in range(3))
    second = train(job, epochs=2)
    assert second.returncode == 0, second.stderr[-4000:]
    assert "[2] resumed from pass-00001\n" in second.stdout
    assert (job / "output" / "pass-00002" / "done").is_file()
