"""Programs that fail restart in their pods, with real PaddlePaddle on a real node."""

from __future__ import annotations

import time

import pytest

from e2e.jobs import Body, Job, Space, eventually, example, templates, with_environment, without_gpu
from e2e.report import REPORT

KILL = "kill -9 $(cut -d' ' -f1 /proc/1/task/1/children)"
"""Kills the program, which is the first child of the supervisor."""


def recorded(name: str, **environment: object) -> Body:
    body = with_environment(without_gpu(example(name)), environment)
    body["spec"]["recorder"] = True
    return body


def resnet(*, with_launcher: bool) -> Body:
    body = recorded("resnet", EPOCHS=8, CHECKPOINT_DIR="/tmp/checkpoints")
    if not with_launcher:
        for template in templates(body):
            template["containers"][0]["args"] = ["-u", "train_fleet.py"]
    return body


CASES = {
    "a rank started by the launcher": (resnet(with_launcher=True), "worker-1"),
    "a rank without the launcher": (resnet(with_launcher=False), "worker-1"),
    "a parameter server": (recorded("wide_and_deep", EPOCHS=3), "ps-0"),
}


@pytest.mark.parametrize(("body", "victim"), CASES.values(), ids=CASES)
def test_a_killed_program_restarts_with_its_peers_in_their_pods(
    space: Space, body: Body, victim: str, request: pytest.FixtureRequest
) -> None:
    job = space.submit(body)
    job.await_phase("Running", within_seconds=120)
    eventually(lambda: step_in(job, attempt=0) > 0, within_seconds=120, says=job.status)
    before = job.uids()
    began = time.monotonic()
    space.kubectl("exec", f"{job.name}-{victim}", "--", "sh", "-c", KILL)
    eventually(lambda: job.log("worker-0").count("starts in place") == 1, says=job.status)
    REPORT.seconds(f"{request.node.callspec.id}: killed to the next start", time.monotonic() - began)
    eventually(lambda: step_in(job, attempt=1) > 0, within_seconds=120, says=job.status)
    status = job.await_phase("Completed", within_seconds=300)
    assert (status["attempt"], status["processAttempt"], status["restarts"]) == (1, 1, 1)
    assert status["lastFailure"]["pod"] == f"{job.name}-{victim}"
    assert status["lastFailure"]["exitCode"] == 137
    assert (status["lastRecovery"]["attempt"], status["lastRecovery"]["kind"]) == (1, "InPlace")
    assert before.items() >= job.uids().items()
    statuses = [each for pod in job.pods() for each in pod["status"]["containerStatuses"]]
    assert all(each["restartCount"] == 0 for each in statuses)


def step_in(job: Job, *, attempt: int) -> int:
    """Return the step of an attempt, 0 until it has made one."""
    progress = job.status().get("progress") or {}
    return int(progress.get("step", 0)) if progress.get("attempt", 0) >= attempt else 0
