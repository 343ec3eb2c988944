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
PEERS_WORDS = "worker-0 waits for its peer"
SERVE = f"echo {PEERS_WORDS}; trap 'exit 143' TERM; sleep 600 & wait"
FAIL_LATE = (
    f'if test "$PADDLE_TRAINER_ID" = 0; then {SERVE}; fi; sleep 4; echo "ValueError: {LAST_WORDS}"; exit 1'
)
JOBS = 8
"""Enough for a kubelet to report the phase of one of the pods later than its containers."""
HOG = "print('taking', flush=True); print(len(bytearray(400 * 2**20)))"


def test_a_worker_that_crashes_fails_the_job_and_is_quoted(space: Space) -> None:
    job = space.submit(collective("crash", WIDE_AND_DEEP, ["bash", "-c", CRASH], replicas=2))
    status = job.await_phase("Failed")
    assert status["reason"] == "PodFailed"
    assert status["message"] == "worker-1 exited with code 3: line 7 of the data is broken"


def test_a_failed_job_stops_its_pods_and_keeps_them_with_their_logs(space: Space) -> None:
    jobs = []
    for number in range(JOBS):
        policy = ("OnCompletion", "Never")[number % 2]
        command = ["bash", "-c", FAIL_LATE]
        body = collective(f"late-{number}", WIDE_AND_DEEP, command, replicas=2, cleanPodPolicy=policy)
        for template in templates(body):
            template["terminationGracePeriodSeconds"] = 30
        jobs.append(space.submit(body))
    uids = [job.uids() for job in jobs if job.await_phase("Failed", within_seconds=120)]
    for job, before in zip(jobs, uids, strict=True):
        eventually(lambda job=job: job.status()["worker"]["running"] == 0, says=job.status)
        worker = job.status()["worker"]
        assert (worker["failed"], worker["ready"], worker["replicas"]) == (1, "0/2", 2)
        assert job.uids() == before
        peer = next(pod["status"] for pod in job.pods() if pod["metadata"]["name"] == f"{job.name}-worker-0")
        assert (peer["phase"], peer["reason"]) == ("Failed", "DeadlineExceeded")
        assert peer["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
        assert PEERS_WORDS in job.log("worker-0")
        assert LAST_WORDS in job.log("worker-1")
        assert LAST_WORDS in first_error(job)
        assert LAST_WORDS in job.status()["message"]


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
