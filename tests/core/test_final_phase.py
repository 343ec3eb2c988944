"""An ended pod is judged with its phase: only then does a kubelet report that it evicted the pod."""

from __future__ import annotations

import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.snapshot import MAX_PHASE_DELAY_SECONDS
from simkube.build import NOW, SnapshotBuilder, job, snapshot

EXIT_CODES = [0, 1, 137, 143]


def training(**spec) -> SnapshotBuilder:
    of = job().worker(1).spec(backoffLimit=0, **spec)
    built = snapshot(of).pods_with_addresses().config().pods_running()
    return built.phase(Phase.RUNNING, start_time=NOW).formed()


@pytest.mark.parametrize("code", EXIT_CODES)
def test_an_end_without_its_phase_decides_nothing(code):
    plan = training().unsettled("worker", 0, code=code, seconds_ago=2).plan()
    assert (plan.status.phase, plan.status.attempt, plan.status.worker.ready) == (Phase.RUNNING, 0, "1/1")
    assert (plan.stages, plan.requeue_after_seconds) == ((), MAX_PHASE_DELAY_SECONDS - 2)


@pytest.mark.parametrize("code", EXIT_CODES)
def test_an_eviction_costs_no_restart_whatever_the_program_exits_with(code):
    built = training().unsettled("worker", 0, code=code)
    status = built._pods[built.replicas()[0]]["status"]
    status |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    plan = built.plan()
    assert (plan.status.phase, plan.status.restarts) == (Phase.RESTARTING, 0)


@pytest.mark.parametrize(
    ("code", "phase"), [(0, Phase.COMPLETED), (1, Phase.FAILED), (137, Phase.FAILED), (143, Phase.RESTARTING)]
)
@pytest.mark.parametrize("reported", ["Pending", "Running"])
def test_a_phase_that_does_not_come_is_not_awaited_for_long(code, phase, reported):
    built = training().unsettled("worker", 0, code=code, phase=reported, seconds_ago=MAX_PHASE_DELAY_SECONDS)
    assert built.plan().status.phase is phase


def test_an_end_before_the_phase_said_that_the_pod_ran_does_not_start_the_job():
    built = training().unsettled("worker", 0, phase="Pending").phase(Phase.STARTING, start_time=None)
    assert built.plan().status.phase is Phase.STARTING


def peers(**spec) -> SnapshotBuilder:
    of = job().ps(1).worker(2).spec(backoffLimit=0, **spec)
    built = snapshot(of).pods_with_addresses().config().pods_running()
    return built.phase(Phase.RUNNING, start_time=NOW).formed()


@pytest.mark.parametrize("code", [137, 143])
@pytest.mark.parametrize(("role", "gloo"), [("worker", 1), ("ps", 1), ("ps", 0)])
def test_a_follower_is_not_judged_while_the_phase_of_its_peer_is_awaited(role, gloo, code):
    built = peers(withGloo=gloo).failed("worker", 1).unsettled(role, 0, code=code, seconds_ago=2)
    plan = built.plan()
    assert plan.status.phase is not Phase.FAILED
    assert (plan.status.attempt, plan.stages, plan.requeue_after_seconds) == (0, (), 3)
    status = built._pods[next(each for each in built.replicas() if str(each) == f"{role}-0")]["status"]
    status |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    assert built.plan().status.phase is Phase.RESTARTING


def test_a_worker_without_peers_is_judged_alone():
    built = peers(withGloo=0).failed("worker", 1).unsettled("worker", 0, code=137)
    assert built.plan().status.phase is Phase.FAILED


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize(("role", "gloo"), [("worker", 1), ("ps", 1), ("ps", 0)])
def test_the_exit_of_a_follower_is_not_the_cause_where_a_peer_was_deleted(role, gloo, is_gone):
    built = peers(withGloo=gloo).failed("worker", 1)
    built = built.gone(role, 0) if is_gone else built.leaving(role, 0)
    status = built.plan().status
    assert (status.phase, status.restarts, status.last_failure.reason) == (Phase.RESTARTING, 0, "PodLost")


def test_the_exit_of_a_worker_without_peers_is_judged_where_another_was_deleted():
    assert peers(withGloo=0).failed("worker", 1).leaving("worker", 0).plan().status.phase is Phase.FAILED
