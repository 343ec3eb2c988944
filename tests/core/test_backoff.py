"""Every restart waits, longer each time that nothing came of it, and says until when."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase, RestartPolicy
from paddlejob.core.actions import Create, Delete, Kind, PatchGroup
from paddlejob.core.attempts.backoff import delay_seconds, removals
from simkube.build import NOW, job, snapshot


def live(of=None):
    built = snapshot(of or job().worker(2)).pods_with_addresses().config().pods_running()
    return built.status(built.plan().status)


def created(plan) -> list[str]:
    return [
        action.name
        for stage in plan.stages
        for action in stage
        if isinstance(action, Create) and action.kind is Kind.POD
    ]


def fail_again(built, **ending):
    """Let worker 1 fail and all old pods be gone; return the snapshot before its next attempt."""
    built.failed("worker", 1, **ending)
    built.status(built.plan().status)
    built._pods.clear()
    return built


def run_again(built):
    """Let the next attempt run, as soon as it may."""
    built.later(built.plan().requeue_after_seconds or 0)
    assert created(built.plan())
    built.status(built.plan().status)
    built.pods_with_addresses()
    built.status(built.plan().status).pods_running()
    return built.status(built.plan().status)


def waits(built, times: int, **ending) -> list[float]:
    """Return how long each of so many attempts in a row waits."""
    seconds = []
    for _ in range(times):
        fail_again(built, **ending)
        seconds.append(built.plan().requeue_after_seconds or 0.0)
        run_again(built)
    return seconds


def evicted(built):
    disruption = {"type": "DisruptionTarget", "status": "True"}
    built.pod("worker", 1, {"phase": "Failed", "reason": "Evicted", "conditions": [disruption]})
    built.status(built.plan().status)
    built._pods.clear()
    return built


POLICIES = {
    "the default": (RestartPolicy(), [5, 10, 20, 40, 80, 160, 300, 300]),
    "no delay: the sixth waits all the same": (
        RestartPolicy(delay_seconds=0, max_delay_seconds=0),
        [0, 0, 0, 0, 0, 60, 60, 60],
    ),
    "a long one": (RestartPolicy(delay_seconds=3600, max_delay_seconds=7200), [3600] + [7200] * 7),
}


@pytest.mark.parametrize(("policy", "expected"), POLICIES.values(), ids=POLICIES.keys())
def test_the_delay_doubles_up_to_its_bound(policy, expected):
    seconds = [delay_seconds(policy, number, first_is_immediate=False) for number in range(1, 9)]
    assert seconds == expected


@pytest.mark.parametrize("code", [143, 137], ids=["uncounted", "counted"])
def test_only_the_first_begins_at_once(code):
    assert waits(live(job().worker(2).spec(backoffLimit=9)), 4, code=code) == [0, 10, 20, 40]


@pytest.mark.parametrize("code", [15, 101, 143])
def test_a_planned_exit_that_goes_on_without_progress_counts_and_ends_the_job(code):
    built = live()
    waits(built, 8, code=code)
    assert (built.job.status.restarts, built.job.status.attempt) == (3, 8)
    plan = built.failed("worker", 1, code=code).plan()
    assert (plan.status.phase, plan.status.reason) == (Phase.FAILED, Reason.BACKOFF_LIMIT_EXCEEDED)


def test_an_eviction_never_counts_however_often():
    built = live(job().worker(2).spec(backoffLimit=0))
    for _ in range(12):
        run_again(evicted(built))
    assert (built.job.status.restarts, built.job.status.consecutive_restarts) == (0, 12)


def test_ten_minutes_of_running_are_progress():
    built = live()
    waits(built, 4, code=143)
    assert fail_again(built.later(599), code=143).plan().requeue_after_seconds == 80
    run_again(built)
    assert created(fail_again(built.later(600), code=143).plan())
    assert built.job.status.consecutive_restarts == 1


def test_the_message_says_when_and_why_and_stays_as_it_is():
    built = live()
    waits(built, 2, code=143)
    fail_again(built, code=143, reason="Error")
    status = built.plan().status
    assert (status.phase, status.reason) == (Phase.RESTARTING, "WaitingToRestart")
    until = f"{status.retry_time:%H:%M:%S}Z"
    assert status.message == f"restarting at {until} (attempt 3): worker-1 exited with code 143"
    built.status(status)
    assert built.later(7).plan().status == status


def test_a_scaling_of_the_user_waits_for_nothing():
    built = live()
    waits(built, 4, code=143)
    bigger = snapshot(job().worker(3)).status(built.job.status)
    bigger._pods, bigger._config, bigger.now = built._pods, built._config, built.now
    bigger.status(bigger.plan().status)._pods.clear()
    assert (bigger.job.status.phase, bigger.job.status.retry_time) == (Phase.SCALING, None)
    assert created(bigger.plan())


def test_changed_addresses_wait_too():
    built = live()
    for _ in range(2):
        for pod in built._pods.values():
            pod["metadata"]["annotations"]["batch.paddlepaddle.org/config-hash"] = "another"
        plan = built.plan()
        built.status(plan.status)._pods.clear()
        if plan.status.attempt < 2:
            run_again(built)
    assert built.plan().requeue_after_seconds == 10
    assert built.plan().status.message.endswith("holds addresses that have changed since it started")


class TestWorkersThatAreReplacedAlone:
    OF = job().ps(1).worker(3).spec(withGloo=0)

    def lose(self, built, index: int):
        del built._pods[next(replica for replica in built._pods if str(replica) == f"worker-{index}")]
        return built.status(built.plan().status)

    def test_each_has_its_first_loss_free(self):
        built = live(self.OF)
        for index in range(3):
            assert created(self.lose(built, index).plan()) == [f"demo-worker-{index}"]
            built.status(built.plan().status).running("worker", index)
            built.status(built.plan().status)
        assert created(self.lose(built, 0).plan()) == []
        assert built.plan().requeue_after_seconds == 10


class TestPodsThatVanishBeforeTheJobRuns:
    def rounds(self, times: int, of=None) -> list[float]:
        """Return the seconds between rounds of creation when somebody deletes every pod at once."""
        built, seconds = snapshot(of or job().worker(1)), []
        for _ in range(times):
            assert created(built.plan())
            built.status(built.plan().status)
            seconds.append(built.plan().requeue_after_seconds or 0.0)
            built.later(seconds[-1])
        return seconds

    def test_they_are_created_again_more_and_more_slowly(self):
        assert self.rounds(12) == [0, 0, 0, 0, 5, 10, 20, 40, 80, 120, 120, 120]

    def test_the_message_says_so(self):
        built = snapshot(job().worker(1))
        for _ in range(5):
            built.status(built.plan().status)
        status = built.plan().status
        assert (status.phase, status.reason) == (Phase.PENDING, "WaitingToRestart")
        assert status.message == "creating worker-0 again at 12:00:05Z (try 6): its pod was deleted"

    def test_an_edit_of_the_job_is_not_held_against_it(self):
        built = snapshot(job().worker(1))
        for _ in range(5):
            built.status(built.plan().status)
        edited = msgspec.structs.replace(built.job.metadata, generation=2)
        built.job = msgspec.structs.replace(built.job, metadata=edited)
        assert built.later(5).plan().status.rounds == 1

    def test_a_refusal_stays_told_while_the_next_try_waits(self):
        built = snapshot(job().worker(1))
        for _ in range(5):
            built.status(built.plan().status)
        built.refused("create", "Pod", "demo-worker-0", "exceeded quota: team")
        refused = built.status(built.plan().status).job.status
        assert refused.message == "cannot create Pod demo-worker-0: exceeded quota: team; retrying"
        built.failures = ()
        assert (created(built.plan()), built.plan().status) == ([], refused)


def test_a_config_map_that_another_keeps_changing_is_not_fought_over_for_long():
    built = live()
    seconds = []
    for _ in range(9):
        built.config({"PADDLE_TRAINERS_NUM": "tampered"})
        built.later(built.plan().requeue_after_seconds or 0)
        assert [type(action).__name__ for stage in built.plan().stages for action in stage] == [
            "ReplaceConfig"
        ]
        built.status(built.plan().status)
        seconds.append(((built.job.status.retry_time or built.now) - built.now).total_seconds())
    assert seconds == [0, 0, 0, 0, 5, 10, 20, 40, 80]


def test_the_job_runs_on_meanwhile():
    built = live().config({}).phase(Phase.RUNNING, retry_time=NOW.replace(minute=1))
    plan = built.plan()
    assert (plan.stages, plan.status.phase, plan.requeue_after_seconds) == ((), Phase.RUNNING, 60)


def test_a_round_that_waits_still_takes_pods_away_and_gives_quota_back():
    def patch(part, changes):
        return PatchGroup(Kind.WORKLOAD_V1BETA2, "demo", {}, part, changes)

    pod, quota = Delete(Kind.POD, "demo-worker-0", "uid"), patch("status", {"admission": None})
    creation = Create(Kind.POD, "demo-worker-1", {})
    assert removals(((pod, creation), (patch("spec", {"queueName": "b"}), quota))) == ((pod,), (quota,))


def test_a_worker_that_is_drained_now_and_then_never_waits():
    built = live(job().ps(1).worker(2).spec(withGloo=0))
    for _ in range(13):
        built.later(6 * 3600).leaving("worker", 1)
        built.status(built.plan().status)
        assert built.job.status.phase is not Phase.RUNNING
        built.later(30).gone("worker", 1)
        built.status(built.plan().status)
        assert (built.job.status.consecutive_restarts, built.job.status.retry_time) == (1, None)
        built.pods_running().config()
        built.status(built.plan().status)
        assert built.job.status.phase is Phase.RUNNING


def test_a_run_that_was_short_is_no_progress():
    built = live(job().ps(1).worker(2).spec(withGloo=0)).phase(Phase.RUNNING, consecutive_restarts=3)
    assert built.later(60).leaving("worker", 1).plan().status.consecutive_restarts == 3


@pytest.mark.parametrize(
    ("back_seconds", "policy", "left"),
    [
        (0, {}, 10),
        (200, {}, 210),
        (290.5, {}, 300.5),
        (350, {}, 360),
        (351, {}, None),
        (3600, {}, None),
        (3600, {"maxDelaySeconds": 7200}, 3610),
        (100, {"maxDelaySeconds": 5}, 105),
        (176, {"maxDelaySeconds": 5}, None),
    ],
)
def test_a_clock_that_was_set_back_delays_no_restart_far_beyond_the_longest_delay(back_seconds, policy, left):
    built = live(job().worker(2).spec(restartPolicy=policy)).phase(Phase.RUNNING, consecutive_restarts=1)
    fail_again(built, code=137)
    plan = built.later(-back_seconds).plan()
    assert (plan.requeue_after_seconds, bool(created(plan))) == (left, left is None)
