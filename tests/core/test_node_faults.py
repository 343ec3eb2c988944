"""Failures of nodes are delayed, make pods prefer other nodes, and never end a job that has run."""

from __future__ import annotations

import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.attempts.backoff import EARLY_RESTARTS
from simkube.build import NOW, job, snapshot


def ended(code: int, reason: str, message: str = "") -> dict:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"phase": "Failed", "containerStatuses": [{"name": "paddle", "state": state}]}


REJECTED = {
    "phase": "Failed",
    "reason": "OutOfcpu",
    "message": "Pod was rejected: Node didn't have enough cpu",
}
FAULTS = {
    "a rejection": (REJECTED, "worker-1 failed (OutOfcpu): Pod was rejected: Node didn't have enough cpu"),
    "a reboot": (
        ended(137, "ContainerStatusUnknown"),
        "worker-1 exited with code 137 (ContainerStatusUnknown)",
    ),
    "a runtime that cannot start it": (
        ended(128, "StartError", "no space left on device"),
        "worker-1 exited with code 128 (StartError): no space left on device",
    ),
}


def after(fault: dict, times: int, of=None, *, ran: bool = True):
    """Return the snapshot after as many attempts in which worker 1 met a fault of its node."""
    built = snapshot(of or job().worker(2).spec(backoffLimit=0)).serves()
    built.phase(Phase.PENDING, start_time=NOW if ran else None)
    for number in range(times):
        built.pods_running().pod("worker", 1, fault, node=f"node-{number}")
        built.status(built.plan().status)
        built._pods.clear()
        built.later(600)
    return built


@pytest.mark.parametrize(("fault", "text"), FAULTS.values(), ids=FAULTS)
def test_a_fault_of_a_node_is_delayed_and_named_and_never_counted(fault, text):
    built = after(fault, 1)
    status = built.job.status
    assert (status.phase, status.restarts, status.suspect_nodes) == (Phase.RESTARTING, 0, ("node-0",))
    assert status.last_failure.message == f"{text}, on node node-0"
    assert built.later(-600).plan().requeue_after_seconds == 5


@pytest.mark.parametrize(("fault", "text"), FAULTS.values(), ids=FAULTS)
def test_a_fault_that_repeats_never_ends_the_job_and_is_ever_rarer(fault, text):
    built = after(fault, 40)
    assert (built.job.status.phase, built.job.status.restarts) == (Phase.RESTARTING, 0)
    assert built.later(-600).plan().requeue_after_seconds == 300
    assert text in built.plan().status.message


@pytest.mark.parametrize("name", ["a rejection", "a reboot"])
def test_neither_rejections_nor_reboots_end_a_job_that_has_never_run(name):
    status = after(FAULTS[name][0], 40, ran=False).job.status
    assert (status.phase, status.restarts) == (Phase.RESTARTING, 0)


@pytest.mark.parametrize("limit", [0, 3])
def test_a_start_error_that_repeats_in_a_job_that_has_never_run_ends_it(limit):
    fault, text = FAULTS["a runtime that cannot start it"]
    of = job().worker(2).spec(backoffLimit=limit)
    status = after(fault, EARLY_RESTARTS + limit, of, ran=False).job.status
    assert (status.phase, status.restarts) == (Phase.RESTARTING, limit)
    status = after(fault, EARLY_RESTARTS + limit + 1, of, ran=False).job.status
    assert (status.phase, status.reason) == (Phase.FAILED, "BackoffLimitExceeded")
    assert status.message.startswith(text)


def test_a_worker_that_is_replaced_alone_is_delayed_too():
    built = after(REJECTED, 1, job().ps(1).worker(2).spec(withGloo=0))
    assert (built.job.status.reason, built.job.status.suspect_nodes) == ("ReplacedPod", ("node-0",))
    assert built.job.status.retry_time is not None


def test_a_laptop_is_the_only_machine_and_would_refuse_again():
    built = snapshot(job().worker(1)).pod(
        "worker", 0, ended(128, "StartError", "no such volume"), node="mine"
    )
    assert built.plan().status.phase is Phase.FAILED
