"""The Wide & Deep example, trained for real by two servers and two workers."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

PROGRAM = str(Path(__file__).resolve().parents[2] / "examples" / "wide_and_deep" / "train.py")
STEP = r"epoch 1 step \d+/392 loss \d\.\d{4}$"

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]


def test_a_stopped_job_saves_and_the_next_one_reaches_the_auc(
    start_job, parameter_server_python, census, tmp_path
):
    command = [parameter_server_python, PROGRAM]
    settings = {"DATA_DIR": census, "CHECKPOINT_DIR": tmp_path / "shared", "EPOCHS": 1}

    first = start_job(command, ps=2, workers=2, **settings)
    first.workers[0].wait_for(STEP)
    first.send(signal.SIGTERM)
    assert first.exit_codes() == {"ps-0": 143, "ps-1": 143, "worker-0": 143, "worker-1": 143}
    assert first.survivors() == []
    stopped = first.workers[0].wait_for(r"stopped at (pass-00000-files-\d{4})$")[1]
    assert (tmp_path / "shared" / stopped / "done").is_file()

    model = tmp_path / "model"
    second = start_job(command, ps=2, workers=2, **settings, MODEL_DIR=model)
    assert [worker.wait_for(r"resumed from (\S+)$")[1] for worker in second.workers] == [stopped, stopped]
    ends = [
        worker.wait_for(r"done auc (\S+) test_rows 99762 seconds \S+ rows/s \d+$")
        for worker in second.workers
    ]
    assert [worker.exit_code() for worker in second.workers] == [0, 0]
    assert ends[0][1] == ends[1][1]
    assert float(ends[0][1]) >= 0.92
    assert (tmp_path / "shared" / "pass-00001" / "done").is_file()

    # As when a job is complete: the servers are still there, and leave at once when they are told to.
    for server in second.servers:
        server.send(signal.SIGTERM)
    assert [server.exit_code() for server in second.servers] == [143, 143]
    assert second.survivors() == []

    # Without servers, from nothing but the saved model: the servers' table must be in it.
    predict = [parameter_server_python, PROGRAM.replace("train.py", "predict.py"), str(model)]
    outcome = subprocess.run(predict, env={"DATA_DIR": census}, check=True, capture_output=True, text=True)
    said = outcome.stdout
    assert len(re.findall(r"person \d: more than 50,000 dollars: probability 0\.\d+, in fact", said)) == 5
    predicted = re.search(r"auc (\S+) of 6236 people\n", said)
    assert predicted, said
    assert abs(float(predicted[1]) - float(ends[0][1])) < 0.02


def test_a_worker_without_servers_gives_up_with_a_sentence(start_job, parameter_server_python, census):
    job = start_job([parameter_server_python, PROGRAM], ps=1, workers=1, DATA_DIR=census, START_TIMEOUT=0.1)
    job.servers[0].send(signal.SIGKILL)
    assert job.workers[0].exit_code() == 1
    job.workers[0].wait_for(r"train.py: no server answered at 127\.\S+ within 0.1 seconds$")
