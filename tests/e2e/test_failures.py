from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from e2e.images import WIDE_AND_DEEP
from e2e.jobs import Job, Space, collective, templates
from tests.support.waiting import eventually

CRASH = (
    'test "$PADDLE_TRAINER_ID" = 0 || { echo "line 7 of the data is broken" >&2; exit 3; }; exec sleep 600'
)
LAST_WORDS = "worker-1 cannot read line 7"
FAIL_LATE = (
    f'test "$PADDLE_TRAINER_ID" = 0 && exec sleep 600; sleep 4; echo "ValueError: {LAST_WORDS}"; exit 1'
)
JOBS = 8
"""Enough for a kubelet to report the phase of one of the pods later than its containers."""
HOG = "print('taking', flush=True); print(len(bytearray(400 * 2**20)))"


def test_a_worker_that_crashes_fails_the_job_and_is_quoted(space: Space) -> None:
    job = space.submit(collective("crash", WIDE_AND_DEEP, ["bash", "-c", CRASH], replicas=2))
    status = job.await_phase("Failed")
    assert status["reason"] == "PodFailed"
    assert status["message"] == "worker-1 exited with code 3: line 7 of the data is broken"


def test_the_log_of_the_worker_that_failed_stays_by_default(space: Space) -> None:
    jobs = []
    for number in range(JOBS):
        body = collective(f"late-{number}", WIDE_AND_DEEP, ["bash", "-c", FAIL_LATE], replicas=2)
        del body["spec"]["cleanPodPolicy"]
        jobs.append(space.submit(body))
    for job in jobs:
        job.await_phase("Failed", within_seconds=120)
    for job in jobs:
        eventually(lambda job=job: list(job.uids()) == [f"{job.name}-worker-1"], says=job.uids)
        assert LAST_WORDS in job.log("worker-1")
        assert LAST_WORDS in first_error(job)
        worker = job.status()["worker"]
        assert (worker["running"], worker["failed"], worker["ready"]) == (0, 1, "0/2")


def first_error(job: Job) -> str:
    """Return what `kubectl pdj logs --first-error` prints."""
    program = Path(sys.executable).with_name("kubectl-pdj")
    options = [f"--namespace={job.space.name}", f"--kubeconfig={job.space.cluster.kubeconfig}"]
    command = [program, "logs", job.name, "--first-error", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout


def test_a_worker_without_enough_memory_is_restarted_then_given_up(space: Space) -> None:
    body = collective("hungry", WIDE_AND_DEEP, ["python3", "-c", HOG], backoffLimit=1)
    body["spec"]["restartPolicy"] = {"delaySeconds": 1}
    for template in templates(body):
        template["containers"][0]["resources"] = {"limits": {"memory": "100Mi"}}
    status = space.submit(body).await_phase("Failed", within_seconds=90)
    assert status["reason"] == "BackoffLimitExceeded"
    assert "worker-0 exited with code 137 (OOMKilled)" in status["message"]
    assert status["restarts"] == 1
