"""An ended pod is judged with its phase: only then does a kubelet report that it evicted the pod."""

from __future__ import annotations

import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.snapshot import MAX_PHASE_DELAY_SECONDS
from paddlejob.testing.build import NOW, SnapshotBuilder, job, snapshot

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
