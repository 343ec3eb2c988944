from __future__ import annotations

import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.pod_set import pod_set_of
from paddlejob.core.policy.success import success
from simkube.build import job, snapshot

PS_JOB = job().ps(1).worker(2)


def verdict_of(built, policy=""):
    return success(pod_set_of("demo", built.spec.roles, built.build().pods), policy)


def running(of=PS_JOB):
    return snapshot(of).pods_running()


DONE = {
    "all workers while servers still run": (
        running().succeeded("worker", 0).succeeded("worker", 1),
        "",
        "all 2 workers succeeded",
    ),
    "the only worker": (running(job().worker(1)).succeeded("worker", 0), "", "the worker succeeded"),
    "all workers, whatever a server did at the end": (
        running().succeeded("worker", 0).succeeded("worker", 1).failed("ps", 0, code=143),
        "AllWorkers",
        "all 2 workers succeeded",
    ),
    "worker 0 where that is enough": (running().succeeded("worker", 0), "Worker0", "worker-0 succeeded"),
}


@pytest.mark.parametrize(("built", "policy", "message"), DONE.values(), ids=DONE.keys())
def test_a_job_is_done_by(built, policy, message):
    verdict = verdict_of(built, policy)
    assert (verdict.phase, verdict.reason, verdict.message) == (Phase.COMPLETED, "WorkersSucceeded", message)


NOT_DONE = {
    "all run": (running(), ""),
    "one worker of two is done": (running().succeeded("worker", 0), ""),
    "there are no pods": (snapshot(PS_JOB), ""),
    "a done worker is leaving": (
        running().succeeded("worker", 0).succeeded("worker", 1).leaving("worker", 1),
        "",
    ),
    "another worker than worker 0 is done": (running().succeeded("worker", 1), "Worker0"),
}


@pytest.mark.parametrize(("built", "policy"), NOT_DONE.values(), ids=NOT_DONE.keys())
def test_a_job_is_not_done_while(built, policy):
    assert verdict_of(built, policy) is None
