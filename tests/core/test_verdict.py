from __future__ import annotations

import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.classify import roster_of
from paddlejob.core.policy.verdict import judge
from paddlejob.testing.build import job, world

PS_JOB = job().ps(1).worker(2)


def judged(built):
    return judge(roster_of("demo", built.spec.roles, built.snapshot().pods), built.now, 30)


def running(of=PS_JOB):
    return world(of).pods_running()


ENDINGS = {
    "all workers done while servers still run": (
        running().succeeded("worker", 0).succeeded("worker", 1),
        (Phase.COMPLETED, "WorkersSucceeded", "all 2 workers succeeded"),
    ),
    "a single worker done": (
        running(job().worker(1)).succeeded("worker", 0),
        (Phase.COMPLETED, "WorkersSucceeded", "the worker succeeded"),
    ),
    "a crashed worker, with its last words": (
        running().failed("worker", 1, code=3, message="Traceback\nValueError: no data\n"),
        (Phase.FAILED, "PodFailed", "worker-1 failed first with exit code 3: ValueError: no data"),
    ),
    "out of memory": (
        running().failed("worker", 0, code=137, reason="OOMKilled"),
        (Phase.FAILED, "PodFailed", "worker-0 failed first with exit code 137 (OOMKilled)"),
    ),
    "the one that failed first is named": (
        running().failed("worker", 0, code=134, seconds_ago=1).failed("worker", 1, code=9, seconds_ago=5),
        (Phase.FAILED, "PodFailed", "worker-1 failed first with exit code 9"),
    ),
    "a crashed server": (
        running().failed("ps", 0, code=1),
        (Phase.FAILED, "PodFailed", "ps-0 failed first with exit code 1"),
    ),
    "failure outweighs success": (
        running().succeeded("worker", 0).succeeded("worker", 1).failed("ps", 0),
        (Phase.FAILED, "PodFailed", "ps-0 failed first with exit code 1"),
    ),
    "a server gone too long, though with exit code 0": (
        running().succeeded("ps", 0, seconds_ago=31),
        (Phase.FAILED, "ServerExitedEarly", "ps-0 exited with exit code 0 before the workers were done"),
    ),
    "a server told to stop just before the workers end": (
        running().succeeded("ps", 0, seconds_ago=31).succeeded("worker", 0).succeeded("worker", 1),
        (Phase.COMPLETED, "WorkersSucceeded", "all 2 workers succeeded"),
    ),
    "a heter pod gone too long": (
        running(job().ps(1).worker(1).heter(1)).succeeded("heter", 0, seconds_ago=31),
        (Phase.FAILED, "ServerExitedEarly", "heter-0 exited with exit code 0 before the workers were done"),
    ),
    "an evicted pod without container status": (
        running().pod(
            "worker", 0, {"phase": "Failed", "reason": "Evicted", "message": "The node was low on disk."}
        ),
        (Phase.FAILED, "PodFailed", "worker-0 failed first (Evicted): The node was low on disk."),
    ),
}


@pytest.mark.parametrize(("built", "expected"), ENDINGS.values(), ids=ENDINGS.keys())
def test_the_job_has_ended_by(built, expected):
    verdict = judged(built).verdict
    assert (verdict.phase, verdict.reason, verdict.message) == expected


ALIVE = {
    "all run": running(),
    "one worker of two is done": running().succeeded("worker", 0),
    "pods are missing": world(PS_JOB),
    "a failed pod that is already leaving": running().failed("worker", 0).leaving("worker", 0),
    "a done worker that is leaving": running()
    .succeeded("worker", 0)
    .succeeded("worker", 1)
    .leaving("worker", 1),
}


@pytest.mark.parametrize("built", ALIVE.values(), ids=ALIVE.keys())
def test_the_job_goes_on_while(built):
    assert judged(built).verdict is None


def test_a_server_that_just_exited_is_looked_at_again_in_time():
    judgement = judged(running().succeeded("ps", 0, seconds_ago=10))
    assert judgement.verdict is None
    assert judgement.look_again_in_seconds == 20
