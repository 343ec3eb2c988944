"""Suspension, deadlines, time to live, and jobs that are another's."""

from __future__ import annotations

import pytest

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase
from paddlejob.core.actions import DeleteJob
from paddlejob.core.messages import PhaseReason
from paddlejob.core.observed import observe
from paddlejob.core.status import next_status
from simkube.build import NOW, job, snapshot

CREATED = {"creationTimestamp": "2026-01-01T12:00:00Z"}


def live(of):
    built = snapshot(of).pods_with_addresses().config().pods_running()
    return built.status(built.plan().status)


def edited(built, of):
    changed = snapshot(of).status(built.job.status)
    changed._pods, changed._config, changed.now = built._pods, built._config, built.now
    return changed


def suspended():
    return edited(live(job().worker(2)).later(100), job().worker(2).spec(suspend=True))


def test_suspension_takes_the_pods_away_and_keeps_the_job():
    plan = suspended().plan()
    assert plan.status.phase is Phase.SUSPENDED
    assert [action.name for action in plan.stages[0]] == ["demo-worker-0", "demo-worker-1"]
    assert [event.reason for event in plan.events] == ["Suspended"]


def test_a_job_born_suspended_creates_nothing():
    plan = snapshot(job().worker(2).spec(suspend=True)).plan()
    assert (plan.stages, plan.status.phase) == ((), Phase.SUSPENDED)


def test_a_job_that_succeeds_in_the_moment_of_its_suspension_is_completed():
    built = suspended().succeeded("worker", 0).succeeded("worker", 1)
    assert built.plan().status.phase is Phase.COMPLETED


def test_a_worker_that_succeeds_in_the_moment_of_its_suspension_does_not_complete_the_others():
    assert suspended().succeeded("worker", 0).plan().status.phase is Phase.SUSPENDED


def test_suspension_settles():
    built = suspended()
    built.status(built.plan().status)
    built._pods = {}
    built.status(built.plan().status)
    assert built.later(1000).plan().status == built.job.status


def test_the_clock_of_the_deadline_stops():
    status = suspended().plan().status
    assert (status.active_since, status.active_seconds) == (None, 100)


def test_resuming_is_a_new_attempt_of_all_pods():
    built = suspended()
    built.status(built.plan().status)
    built._pods = {}
    plan = edited(built, job().worker(2)).plan()
    assert (plan.status.phase, plan.status.attempt) == (Phase.PENDING, 1)
    assert [action.name for action in plan.stages[0]] == ["demo-worker-0", "demo-worker-1"]


@pytest.mark.parametrize(
    ("phase", "reason", "is_counted"),
    [
        (Phase.PENDING, Reason.WAITING_FOR_PODS, True),
        (Phase.PENDING, Reason.WAITING_FOR_GANG, False),
        (Phase.FAILED, Reason.POD_FAILED, False),
    ],
)
def test_the_clock_of_the_deadline_starts_again_with_pods_that_wait_for_no_gang(phase, reason, is_counted):
    built = suspended()
    built.status(built.plan().status)
    built._pods = {}
    built = edited(built, job().worker(2))
    seen = observe(built.status(built.plan().status).later(50).pods().build())
    status = next_status(seen.trusted, seen.spec, seen.pods, PhaseReason(phase, reason, ""), seen.now)
    assert status.active_since == (seen.now if is_counted else None)


DEADLINES = {
    "in time": (100, None),
    "at the limit": (200, "DeadlineExceeded"),
    "late": (900, "DeadlineExceeded"),
}


@pytest.mark.parametrize(("seconds", "reason"), DEADLINES.values(), ids=DEADLINES.keys())
def test_a_job_may_run_for_its_time(seconds, reason):
    plan = live(job().worker(1).spec(activeDeadlineSeconds=200)).later(seconds).plan()
    assert (plan.status.reason if plan.status.phase is Phase.FAILED else None) == reason


def test_the_deadline_has_a_timer():
    assert live(job().worker(1).spec(activeDeadlineSeconds=200)).later(50).plan().requeue_after_seconds == 150


def test_the_timer_starts_with_the_first_pod_that_runs():
    built = (
        snapshot(job().worker(1).spec(activeDeadlineSeconds=200))
        .pods_with_addresses()
        .config()
        .pods_running()
    )
    assert built.plan().requeue_after_seconds == 200


def test_success_in_the_last_moment_is_success():
    built = live(job().worker(1).spec(activeDeadlineSeconds=200)).later(300).succeeded("worker", 0)
    assert built.plan().status.phase is Phase.COMPLETED


def test_a_job_must_start_in_its_time():
    of = job().worker(1).spec(startupDeadlineSeconds=60).metadata(**CREATED)
    assert snapshot(of).later(20).plan().requeue_after_seconds == 40
    plan = snapshot(of).later(60).plan()
    assert (plan.status.phase, plan.status.reason) == (Phase.FAILED, "StartupDeadlineExceeded")


def test_the_message_says_what_it_waited_for():
    of = job().worker(1).spec(startupDeadlineSeconds=60).metadata(**CREATED)
    built = snapshot(of).waiting("worker", 0, "ErrImagePull", "denied")
    built.status(built.plan().status)
    message = built.later(60).plan().status.message
    assert (
        message
        == "not all pods ran within startupDeadlineSeconds 60: waiting for worker-0: ErrImagePull: denied"
    )


def test_time_in_suspension_is_not_time_to_start():
    of = job().worker(1).spec(startupDeadlineSeconds=60, suspend=True).metadata(**CREATED)
    built = snapshot(of)
    built.status(built.plan().status)
    resumed = edited(built.later(1000), job().worker(1).spec(startupDeadlineSeconds=60).metadata(**CREATED))
    resumed.status(resumed.plan().status)
    assert resumed.later(20).plan().requeue_after_seconds == 40


def test_attempts_that_follow_each_other_do_not_stop_the_clock():
    of = job().worker(2).spec(startupDeadlineSeconds=300, intranet="Service").metadata(**CREATED)
    built = snapshot(of).services().config()
    for _ in range(2):
        built.later(100).failed("worker", 0, code=143).pod("worker", 1)
        built.status(built.plan().status)
        built._pods.clear()
    assert built.job.status.attempt == 2
    plan = built.later(100).plan()
    assert plan.status.reason == "StartupDeadlineExceeded"


NO_WAY_OUT_OF_SUSPENSION = {
    "no host port is free": ({"intranet": "Host"}, "NoHostPort"),
    "the spec is refused": ({"intranet": "Nowhere"}, "InvalidSpec"),
}


@pytest.mark.parametrize(
    ("fields", "reason"), NO_WAY_OUT_OF_SUSPENSION.values(), ids=NO_WAY_OUT_OF_SUSPENSION.keys()
)
def test_a_job_that_cannot_start_when_it_is_resumed_has_all_its_time(fields, reason):
    spec = {"startupDeadlineSeconds": 600, **fields}
    built = snapshot(job().worker(1).spec(**spec, suspend=True).metadata(**CREATED))
    built.status(built.plan().status)
    resumed = edited(built.later(3600), job().worker(1).spec(**spec).metadata(**CREATED))
    resumed.with_settings(host_port_range=(40000, 40019)).host_ports_taken(40000)
    resumed.status(resumed.plan().status)
    assert resumed.job.status.reason == reason
    assert resumed.later(30).plan().status.phase is Phase.PENDING
    assert resumed.later(570).plan().status.reason == "StartupDeadlineExceeded"


def test_a_job_that_ran_once_has_started():
    of = job().worker(1).spec(startupDeadlineSeconds=60).metadata(**CREATED)
    assert live(of).later(1000).plan().status.phase is Phase.RUNNING


def ended(ttl: int | None):
    of = (
        job()
        .worker(1)
        .spec(cleanPodPolicy="Never", **({} if ttl is None else {"ttlSecondsAfterFinished": ttl}))
    )
    return snapshot(of).phase(Phase.COMPLETED, completion_time=NOW)


def test_a_finished_job_is_deleted_when_its_time_is_over():
    assert ended(60).later(59).plan().requeue_after_seconds == 1
    assert ended(60).later(60).plan().stages == ((DeleteJob("demo", "uid-demo"),),)


def test_or_stays():
    plan = ended(None).later(1e9).plan()
    assert (plan.stages, plan.requeue_after_seconds) == ((), None)


@pytest.mark.parametrize(
    ("manager", "is_ours"),
    [("", True), ("paddlepaddle.org/paddlejob-operator", True), ("kueue.x-k8s.io/multikueue", False)],
)
def test_a_job_of_another_controller_is_left_alone(manager, is_ours):
    plan = snapshot(job().worker(1).spec(managedBy=manager)).plan()
    assert bool(plan.stages) is is_ours
    assert bool(plan.status.phase) is is_ours
