"""No decision depends on the clock of a node or of the node controller."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Phase, RestartPolicy
from paddlejob.core.attempts.causes import first_failure
from paddlejob.core.pod_set import pod_set_of
from paddlejob.core.snapshot import StateTimer
from simkube.build import NOW, SnapshotBuilder, job, snapshot

SKEWS = [-600, 0, 600, -(10**9), 10**9]


def connected(of) -> SnapshotBuilder:
    built = snapshot(of).pods_with_addresses().config().pods_running().phase(Phase.RUNNING, start_time=NOW)
    return built.formed()


def silent(skew: float) -> SnapshotBuilder:
    """Return a job whose pod is no longer ready, since a time of a clock that is wrong by so much."""
    built = connected(job().worker(2).spec(restartPolicy={"nodeLostSeconds": 120}))
    since = (built.now + timedelta(seconds=skew)).isoformat()
    manifest = built._pods[built.replicas()[1]]
    manifest["status"]["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": since}]
    return built


@pytest.mark.parametrize("skew", SKEWS)
def test_a_silent_node_is_waited_for_as_long_as_it_has_been_seen_silent(skew):
    plan = silent(skew).seen_for(20).plan()
    assert (plan.status.phase, plan.requeue_after_seconds) == (Phase.RUNNING, 100)
    assert silent(skew).seen_for(120).plan().status.phase is Phase.RESTARTING


@pytest.mark.parametrize("skew", SKEWS)
def test_a_server_that_exited_is_waited_for_as_long_as_it_has_been_seen_ended(skew):
    built = connected(job().ps(1).worker(1)).succeeded("ps", 0, seconds_ago=-skew)
    assert built.seen_for(10).plan().requeue_after_seconds == 20
    assert built.seen_for(30).plan().status.phase is Phase.RESTARTING


@pytest.mark.parametrize("skew", SKEWS)
def test_a_clock_that_is_wrong_puts_an_end_at_most_ten_seconds_off(skew):
    """The error of worker 0 was seen first; worker 1 aborted because of it, on a node of the past."""
    built = (
        snapshot(job().worker(2)).failed("worker", 0, code=1).failed("worker", 1, code=134, seconds_ago=skew)
    )
    seen = dict(zip((pod.metadata.uid for pod in built.build().pods), (30.0, 5.0), strict=True))
    observed = msgspec.structs.replace(built.build(), state_seconds=seen)
    members = list(pod_set_of("demo", built.spec.roles, observed.pods).active)
    assert first_failure(members, RestartPolicy(), observed).replica.index == 0


def test_the_time_of_a_failure_is_when_it_was_seen_where_the_nodes_clock_is_wrong():
    built = connected(job().worker(1)).failed("worker", 0, code=137, seconds_ago=-600).seen_for(2.5)
    assert built.plan().status.last_failure.time == built.now - timedelta(seconds=3)


def pod(status: dict, uid: str = "u") -> Pod:
    return msgspec.convert({"metadata": {"name": "p", "uid": uid}, "status": status}, Pod)


NOT_READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
ENDED = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 1}}}]}


def test_a_state_is_measured_from_its_first_sight():
    timer = StateTimer()
    assert timer.measure([pod(NOT_READY)], 100.0) == {"u": 0.0}
    assert timer.measure([pod(NOT_READY)], 130.0) == {"u": 30.0}


@pytest.mark.parametrize("between", [[pod(READY)], [pod(ENDED)], [pod(NOT_READY, uid="v")], []])
def test_another_state_or_another_pod_is_measured_afresh(between):
    timer = StateTimer()
    timer.measure([pod(NOT_READY)], 100.0)
    timer.measure(between, 110.0)
    assert timer.measure([pod(NOT_READY)], 130.0) == {"u": 0.0}


def test_the_phase_that_follows_an_end_does_not_make_it_a_later_end():
    timer, failed = StateTimer(), pod(ENDED)
    spec = msgspec.structs.replace(failed.spec, restart_policy="Never")
    reported = msgspec.structs.replace(failed.status, phase="Running")
    timer.measure([msgspec.structs.replace(failed, spec=spec, status=reported)], 100.0)
    assert timer.measure([msgspec.structs.replace(failed, spec=spec)], 102.0) == {"u": 2.0}


@pytest.mark.parametrize("status", [{}, {"phase": "Pending"}, READY])
def test_a_pod_that_nobody_waits_for_is_not_remembered(status):
    assert StateTimer().measure([pod(status)], 1.0) == {}
