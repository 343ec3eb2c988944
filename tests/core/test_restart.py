"""The restart ladder, as `plan` climbs it."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.api import names
from paddlejob.api.v1 import Phase, TrainingProgress
from paddlejob.core.actions import ReplaceConfig, StopPod
from paddlejob.core.paddle_env import config_hash
from paddlejob.kubelet import back_off_message
from simkube.build import NOW, job, snapshot

COLLECTIVE = job().worker(3)
GLOO = job().ps(1).worker(2)
OF_DEMO = "C28EEFEE"
"""Marks the keys of this very job, by its UID."""
NO_GLOO = job().ps(1).worker(2).spec(withGloo=0)


def live(of=COLLECTIVE):
    """Return a snapshot that has been running for a while."""
    built = snapshot(of).pods_with_addresses().config().pods_running()
    return built.status(built.plan().status)


def restarted(built):
    """Write the reconcile that begins an attempt, and delete the old pods."""
    built.status(built.plan().status)
    built._pods.clear()
    return built


def deleted(plan) -> list[str]:
    return sorted(
        action.name for stage in plan.stages for action in stage if type(action).__name__ == "Delete"
    )


def created(plan) -> list[str]:
    return sorted(
        action.name
        for stage in plan.stages
        for action in stage
        if type(action).__name__ == "Create" and action.kind == "Pod"
    )


ALL_OF_COLLECTIVE = ["demo-worker-0", "demo-worker-1", "demo-worker-2"]
ALL_OF_PS = ["demo-ps-0", "demo-worker-0", "demo-worker-1"]


def test_a_failure_counts_once_however_long_its_pod_stays():
    """The deletion was refused, or the operator was killed between the status and the deletion."""
    built = live(NO_GLOO).failed("worker", 1, code=137)
    for _ in range(5):
        built.status(built.plan().status)
    assert (built.job.status.phase, built.job.status.restarts) == (Phase.RESTARTING, 1)


STUCK = {
    "a worker that is replaced alone": (NO_GLOO, [("worker", 1)]),
    "two workers that are replaced alone": (NO_GLOO, [("worker", 0), ("worker", 1)]),
    "a server": (NO_GLOO, [("ps", 0)]),
    "a worker of a ring": (COLLECTIVE, [("worker", 1)]),
}


@pytest.mark.parametrize("leaving", [False, True], ids=["refused", "held up by a finalizer"])
@pytest.mark.parametrize(("of", "failed"), STUCK.values(), ids=STUCK)
def test_attempts_do_not_grow_while_a_deletion_does_not_come_through(of, failed, leaving):
    built = live(of)
    for replica in failed:
        built.failed(*replica, code=137)
    built.status(built.plan().status)
    for replica in failed if leaving else ():
        built.leaving(*replica)
    for _ in range(20):
        plan = built.later(60).plan()
        names = {f"demo-{role}-{index}" for role, index in failed}
        assert (plan.status.attempt, created(plan)) == (1, [])
        assert names <= set(deleted(plan)), "the deletion is tried again, by force where it hangs"
        built.status(plan.status)
    assert (built.job.status.restarts, built.job.status.phase) == (1, Phase.RESTARTING)


def test_a_worker_whose_deletion_hangs_keeps_no_other_from_being_replaced():
    built = live(NO_GLOO).failed("worker", 1, code=137)
    built.status(built.plan().status).later(60).leaving("worker", 1)
    built.failed("worker", 0, code=137)
    plan = built.plan()
    assert (plan.status.attempt, plan.status.restarts, deleted(plan)) == (2, 2, ["demo-worker-0"])
    built.status(plan.status).later(60).gone("worker", 0)
    assert created(built.plan()) == ["demo-worker-0"]
    assert built.job.status.replaced_workers == "0-1"


def test_the_pod_of_a_replaced_worker_is_judged_like_any_other():
    built = live(NO_GLOO).failed("worker", 1, code=137)
    built.status(built.plan().status).later(60).failed("worker", 1, code=137)
    plan = built.plan()
    assert (plan.status.attempt, plan.status.restarts, deleted(plan)) == (2, 2, ["demo-worker-1"])


WHO_GOES = {
    "collective: all, for one broke the ring": (live().failed("worker", 1, code=137), ALL_OF_COLLECTIVE),
    "PS with gloo: all, for a late worker would wait forever": (
        live(GLOO).failed("worker", 1, code=137),
        ALL_OF_PS,
    ),
    "PS without gloo: the worker alone": (live(NO_GLOO).failed("worker", 1, code=137), ["demo-worker-1"]),
    "PS: all, for a server held everybody's parameters": (live(NO_GLOO).failed("ps", 0, code=137), ALL_OF_PS),
    "a server that exited early": (live(NO_GLOO).succeeded("ps", 0, seconds_ago=31), ALL_OF_PS),
}


@pytest.mark.parametrize(("built", "expected"), WHO_GOES.values(), ids=WHO_GOES.keys())
def test_who_is_restarted(built, expected):
    plan = built.plan()
    assert deleted(plan) == expected
    assert created(plan) == []
    assert (plan.status.phase, plan.status.attempt) == (Phase.RESTARTING, 1)


def test_the_first_failure_stays_in_the_status():
    plan = live().failed("worker", 1, code=137, reason="OOMKilled", message="Killed").plan()
    failure = plan.status.last_failure
    assert (failure.pod, failure.exit_code, failure.reason) == ("demo-worker-1", 137, "OOMKilled")
    assert (failure.attempt, failure.counted, failure.time) == (0, True, NOW)
    assert failure.message == "worker-1 exited with code 137 (OOMKilled): Killed"
    assert [event.reason for event in plan.events] == ["Restarting"]


def test_an_error_of_the_program_is_final():
    plan = live().failed("worker", 0, code=1, message="ValueError: bad data").plan()
    assert (plan.status.phase, plan.status.reason) == (Phase.FAILED, "PodFailed")
    assert plan.status.message == "worker-0 exited with code 1: ValueError: bad data"
    failure = plan.status.last_failure
    assert (failure.pod, failure.exit_code, failure.attempt) == ("demo-worker-0", 1, 0)
    assert (failure.message, failure.counted) == (plan.status.message, False)


def test_the_budget_is_kept():
    built = live(job().worker(3).spec(backoffLimit=1)).failed("worker", 0, code=137)
    again = restarted(built).pods_running().failed("worker", 2, code=137)
    plan = again.plan()
    assert (plan.status.phase, plan.status.reason) == (Phase.FAILED, "BackoffLimitExceeded")
    assert plan.status.message.endswith("gave up after 1 restart (backoffLimit 1)")
    assert (plan.status.last_failure.pod, plan.status.last_failure.attempt) == ("demo-worker-2", 1)


def test_no_budget_means_no_restart():
    plan = live(job().worker(1).spec(backoffLimit=0)).failed("worker", 0, code=137).plan()
    assert plan.status.phase is Phase.FAILED


def test_a_planned_exit_uses_up_no_budget():
    plan = live(job().worker(1).spec(backoffLimit=0)).failed("worker", 0, code=101).plan()
    assert (plan.status.phase, plan.status.restarts, plan.status.attempt) == (Phase.RESTARTING, 0, 1)


def test_nothing_is_created_while_an_old_pod_is_there():
    built = live().failed("worker", 1, code=137)
    built.status(built.plan().status)
    assert created(built.later(60).plan()) == []
    built.leaving("worker", 0).leaving("worker", 1).leaving("worker", 2)
    assert (created(built.plan()), deleted(built.plan())) == ([], [])


@pytest.mark.parametrize("code", [137, 143], ids=["counted", "uncounted"])
def test_the_second_restart_in_a_row_waits(code):
    built = restarted(live().failed("worker", 1, code=code))
    assert created(built.plan()) == ALL_OF_COLLECTIVE
    second = restarted(built.pods_running().formed().failed("worker", 1, code=code))
    assert (created(second.plan()), second.plan().requeue_after_seconds) == ([], 10)
    assert created(second.later(10).plan()) == ALL_OF_COLLECTIVE


def test_pods_of_the_new_attempt_carry_its_number_and_wait_for_its_config():
    built = restarted(live().failed("worker", 1, code=143))
    pod = built.plan().stages[0][0].manifest
    assert pod["metadata"]["labels"]["batch.paddlepaddle.org/attempt"] == "1"
    gate = next(one for one in pod["spec"]["containers"][0]["env"] if one["name"] == "PADDLEJOB_ATTEMPT")
    assert gate["valueFrom"]["configMapKeyRef"] == {"name": "demo", "key": f"PADDLEJOB_ATTEMPT_1_{OF_DEMO}"}
    data = built.pods_with_addresses().plan().stages[0][0].manifest["data"]
    assert f"PADDLEJOB_ATTEMPT_1_{OF_DEMO}" in data
    assert f"PADDLEJOB_ATTEMPT_0_{OF_DEMO}" not in data


def test_the_phase_says_restarting_until_it_runs_again():
    built = restarted(live().failed("worker", 1, code=143)).pods_with_addresses()
    status = built.plan().status
    assert status.phase is Phase.RESTARTING
    assert status.message.endswith("(attempt 1: worker-1 exited with code 143)")
    assert built.pods_running().plan().status.phase is Phase.RUNNING


def test_a_deleted_pod_restarts_a_collective_job_without_counting():
    built = live()
    del built._pods[built.replicas()[1]]
    plan = built.plan()
    assert (plan.status.phase, plan.status.restarts) == (Phase.RESTARTING, 0)
    assert plan.status.last_failure.reason == "PodLost"
    assert deleted(plan) == ["demo-worker-0", "demo-worker-2"]


def test_a_pod_that_is_being_drained_restarts_a_collective_job_at_once():
    plan = live().leaving("worker", 1).plan()
    assert deleted(plan) == ["demo-worker-0", "demo-worker-2"]


def test_a_worker_that_nobody_waits_for_is_replaced_alone():
    built = live(NO_GLOO)
    del built._pods[built.replicas()[2]]
    plan = built.plan()
    assert (deleted(plan), plan.status.base_attempt, plan.status.attempt) == ([], 0, 1)
    following = built.status(plan.status).plan()
    assert created(following) == ["demo-worker-1"]
    assert following.status.attempt == 1


def test_running_pods_keep_the_rendezvous_of_gloo_that_they_began_with():
    """The templates were changed, or the pods were created by an operator that did not know the directory."""
    directory = {"env": [{"name": "PADDLE_GLOO_FS_PATH", "value": "/shared"}]}
    shared = {"volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]}
    container = {**directory, "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    with_directory = job().ps(1, pod=shared, **container).worker(2, pod=shared, **container).spec(withGloo=2)
    built = live(job().ps(1).worker(2).spec(withGloo=2))
    for pod in built._pods.values():
        pod["metadata"]["annotations"][names.ANNOTATION_CONFIG_HASH] = config_hash(built._config)
    plan = built.respecified(with_directory).plan()
    assert (plan.status.phase, plan.stages) == (Phase.RUNNING, ())
    again = restarted(built.failed("worker", 0, code=143)).pods_with_addresses()
    data = again.plan().stages[0][0].manifest["data"]
    assert (data["PADDLE_GLOO_RENDEZVOUS"], data["SYS_JOB_ID"]) == ("2", f"default-demo-{OF_DEMO}-1")


def test_the_config_names_every_attempt_that_lives():
    built = live(NO_GLOO)
    del built._pods[built.replicas()[2]]
    built.status(built.plan().status).waiting("worker", 1)
    data = built.plan().stages[0][0].manifest["data"]
    assert {f"PADDLEJOB_ATTEMPT_{attempt}_{OF_DEMO}" for attempt in (0, 1)} <= set(data)


def test_an_attempt_of_which_no_pod_is_to_be_seen_may_not_start():
    """The job's status may be known before the pods are, to an operator that takes over."""
    built = live(NO_GLOO)
    replaced = msgspec.structs.replace(built.plan().status, attempt=1)
    plan = built.status(replaced).plan()
    assert not [action for stage in plan.stages for action in stage if isinstance(action, ReplaceConfig)]


def silent(seconds: float, *, ready_reason: str = "", containers_ready: str = "True"):
    """Return a snapshot with a running pod that is not ready, with no reason as the node controller does."""
    since = {"lastTransitionTime": NOW.isoformat()}
    ready = [
        {"type": "Ready", "status": "False", "reason": ready_reason, **since},
        {"type": "ContainersReady", "status": containers_ready, **since},
    ]
    built = live()
    pod = built._pods[built.replicas()[1]]
    pod["status"]["conditions"] = ready
    return built.later(seconds)


def test_a_silent_node_is_given_time():
    assert silent(30).plan().requeue_after_seconds == 90
    assert silent(30).plan().status.attempt == 0


def test_then_its_pod_is_replaced_and_nobody_is_to_blame():
    plan = silent(121).plan()
    assert deleted(plan) == ALL_OF_COLLECTIVE
    assert (plan.status.restarts, plan.status.attempt) == (0, 1)
    assert "is not responding" in plan.status.message


@pytest.mark.parametrize(
    "told",
    [
        {"ready_reason": "ReadinessGatesNotReady"},
        {"ready_reason": "ContainersNotReady"},
        {"containers_ready": "False"},
    ],
    ids=lambda told: next(iter(told.values())),
)
def test_a_node_whose_kubelet_says_why_a_pod_is_not_ready_does_answer(told):
    plan = silent(1000, **told).plan()
    assert (plan.status.attempt, plan.stages, plan.requeue_after_seconds) == (0, (), None)


def test_a_pod_that_never_goes_is_removed_by_force():
    built = live().leaving("worker", 1)
    built.status(built.plan().status)
    assert built.later(59).plan().requeue_after_seconds == 1
    forced = [
        action
        for stage in built.later(2).plan().stages
        for action in stage
        if getattr(action, "force", False)
    ]
    assert [action.name for action in forced] == ["demo-worker-1"]


RESTARTS = {"restartPolicy": "OnFailure"}
ON_FAILURE = job().worker(1, pod=RESTARTS).spec(backoffLimit=2)


def back_off(seconds: float) -> dict:
    return {"waiting": {"reason": "CrashLoopBackOff", "message": back_off_message(seconds, "paddle")}}


CRASH_LOOP = back_off(80)
RUNNING = {"running": {}}
LOST = {"exitCode": 137, "reason": "ContainerStatusUnknown"}


def crash(minutes: int, code: int = 139) -> dict:
    """Return the end of a container that ran for some minutes."""
    times = {"startedAt": "2030-01-01T00:00:00Z", "finishedAt": f"2030-01-01T00:{minutes:02}:00Z"}
    return {"exitCode": code, "reason": "Error", **times}


def in_place(restarts: int, state: dict, last: dict | None = None, *, of=ON_FAILURE):
    """Return a job whose only container was restarted in place."""
    container = {"name": "paddle", "restartCount": restarts, "ready": "running" in state, "state": state}
    container["lastState"] = {"terminated": last} if last else {}
    status = {"phase": "Running", "podIP": "10.0.2.1", "containerStatuses": [container]}
    return live(of).serves().pod("worker", 0, status, node="node-a")


IN_PLACE = {
    "crashes in a row": (in_place(3, CRASH_LOOP, crash(1)), Phase.FAILED),
    "crashes in a row, at the longest delay": (in_place(3, back_off(300), crash(1)), Phase.FAILED),
    "crashes in a row, at the moment of the last": (in_place(3, {"terminated": crash(1)}), Phase.STARTING),
    "restarts of months, and a few crashes": (in_place(20, back_off(40), crash(1)), Phase.STARTING),
    "restarts of months, and a crash": (in_place(20, {"terminated": crash(1)}), Phase.STARTING),
    "a crash after each long run, without end": (in_place(21, {"terminated": crash(15)}), Phase.FAILED),
    "the same without any restart allowed": (
        in_place(11, {"waiting": {}}, crash(15), of=job().worker(1, pod=RESTARTS).spec(backoffLimit=0)),
        Phase.FAILED,
    ),
    "the same while the container runs": (in_place(400, RUNNING, crash(15)), Phase.RUNNING),
    "no more of them than allowed": (in_place(2, CRASH_LOOP, crash(1)), Phase.STARTING),
    "a container that runs again": (in_place(3, RUNNING, crash(1)), Phase.RUNNING),
    "a crash after a long run": (in_place(3, {"terminated": crash(10)}), Phase.STARTING),
    "a restart after a long run": (in_place(3, {"waiting": {}}, crash(10)), Phase.STARTING),
    "a reboot": (in_place(3, {"waiting": {}}, LOST), Phase.STARTING),
    "a node that loses it again and again": (in_place(3, CRASH_LOOP, LOST), Phase.RESTARTING),
}


@pytest.mark.parametrize(("built", "phase"), IN_PLACE.values(), ids=IN_PLACE)
def test_restarts_in_place_are_bounded_too(built, phase):
    assert built.plan().status.phase is phase


def test_a_job_with_new_steps_may_be_restarted_in_place_without_end():
    built = in_place(400, {"terminated": crash(15)})
    progress = TrainingProgress(step=900_000, updated=built.now)
    built.status(msgspec.structs.replace(built.job.status, progress=progress))
    assert built.plan().status.phase is Phase.STARTING


def test_the_end_by_restarts_in_place_says_how_many_and_why():
    status = in_place(3, CRASH_LOOP, crash(1)).plan().status
    assert status.reason == "BackoffLimitExceeded"
    assert status.message == "worker-0 crashed 3 times, last with code 139; gave up (backoffLimit 2)"
    assert (status.last_failure.exit_code, status.last_failure.reason) == (139, "Error")


def test_a_node_that_loses_a_container_again_and_again_is_left():
    status = in_place(3, CRASH_LOOP, LOST).plan().status
    assert (status.restarts, status.suspect_nodes) == (0, ("node-a",))
    assert "(ContainerStatusUnknown), on node node-a" in status.message


def test_with_a_no_progress_limit_crashes_in_place_begin_an_attempt():
    """Only attempts that get no further end such a job."""
    policy = {"noProgressLimit": 2}
    limited = job().worker(1, pod={"restartPolicy": "OnFailure"}).spec(backoffLimit=2, restartPolicy=policy)
    built = in_place(3, CRASH_LOOP, crash(1), of=limited)
    progress = TrainingProgress(step=900_000, updated=built.now)
    built.status(msgspec.structs.replace(built.job.status, progress=progress))
    status = built.plan().status
    assert (status.phase, status.restarts, status.progress_mark.step) == (Phase.RESTARTING, 1, 900_000)
    for reason in ("Restarting", "NoProgress"):
        built = in_place(3, CRASH_LOOP, crash(1), of=limited).status(status)
        pod = next(iter(built._pods.values()))
        pod["metadata"]["labels"]["batch.paddlepaddle.org/attempt"] = str(status.attempt)
        status = built.plan().status
        assert status.reason == reason


def test_a_changed_address_restarts_those_that_hold_the_old_one():
    built = snapshot(job().worker(2)).pods_with_addresses().config()
    mark = built.plan().stages[0][0].config_hash
    built.pods_running()
    built.status(built.plan().status)
    for pod in built._pods.values():
        pod["metadata"]["annotations"]["batch.paddlepaddle.org/config-hash"] = mark
    assert built.plan().stages == ()
    built._pods[built.replicas()[1]]["status"]["podIP"] = "10.9.9.9"
    plan = built.plan()
    assert deleted(plan) == ["demo-worker-0", "demo-worker-1"]
    assert "addresses that have changed" in plan.status.message


class TestServersWhileAWorkerIsReplacedOrAdded:
    """Workers of a parameter server job without gloo come and go; a server that goes takes all with it."""

    BIGGER = job().ps(2).worker(4).spec(withGloo=0)

    def scaled(self):
        """Return a job whose new workers find no place, in which the old ones train on."""
        built = live(job().ps(2).worker(2).spec(withGloo=0))
        bigger = snapshot(self.BIGGER).status(built.job.status)
        bigger._pods, bigger._config = built._pods, built._config
        bigger.status(bigger.plan().status)
        assert created(bigger.plan()) == ["demo-worker-2", "demo-worker-3"]
        bigger.status(bigger.plan().status).pod("worker", 2).pod("worker", 3)
        bigger.status(bigger.plan().status)
        assert (bigger.job.status.attempt, bigger.job.status.base_attempt) == (1, 0)
        return bigger

    def test_the_workers_train_on(self):
        plan = self.scaled().later(3600).plan()
        assert (plan.stages, plan.status.attempt) == ((), 1)

    def test_a_server_that_is_lost_then_restarts_all(self):
        built = self.scaled()
        del built._pods[built.replicas()[0]]
        plan = built.plan()
        assert (plan.status.base_attempt, plan.status.last_failure.reason) == (2, "PodLost")
        assert deleted(plan) == [f"demo-{pod}" for pod in ("ps-1", *(f"worker-{i}" for i in range(4)))]

    def test_so_does_one_that_is_drained(self):
        assert self.scaled().leaving("ps", 1).plan().status.base_attempt == 2

    def test_so_does_one_that_comes_back_with_another_address(self):
        built = self.scaled()
        built._pods[built.replicas()[0]]["status"]["podIP"] = "10.9.9.9"
        plan = built.plan()
        assert plan.status.base_attempt == 2
        assert plan.status.last_failure.reason == "AddressChanged"

    def test_a_worker_that_is_lost_meanwhile_is_created_again(self):
        built = self.scaled()
        del built._pods[built.replicas()[2]]
        plan = built.plan()
        assert (created(plan), plan.status.attempt) == (["demo-worker-0"], 1)

    def test_scaled_once_more_the_old_ones_still_train_on(self):
        built = self.scaled()
        smaller = snapshot(job().ps(2).worker(3).spec(withGloo=0)).status(built.job.status)
        smaller._pods, smaller._config = built._pods, built._config
        plan = smaller.plan()
        assert (plan.status.attempt, plan.status.base_attempt, deleted(plan)) == (2, 0, ["demo-worker-3"])
        assert smaller.status(plan.status).plan().status.attempt == 2

    def test_a_loss_in_the_same_moment_as_a_scaling_restarts_all(self):
        built = live(job().ps(2).worker(2).spec(withGloo=0))
        bigger = snapshot(self.BIGGER).status(built.job.status)
        bigger._pods, bigger._config = built._pods, built._config
        del bigger._pods[built.replicas()[1]]
        assert bigger.plan().status.base_attempt == 1

    def test_where_pods_are_called_by_name_a_worker_may_start_before_all_are_there(self):
        built = snapshot(job().ps(1).worker(2).spec(withGloo=0, intranet="Service")).services().config()
        built.running("ps", 0).running("worker", 0).pod("worker", 1)
        built.status(built.plan().status)
        assert built.job.status.world_size is None
        del built._pods[built.replicas()[0]]
        assert built.plan().status.base_attempt == 1


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.FAILED])
def test_an_ended_job_is_never_restarted(phase):
    built = live(job().worker(2).spec(cleanPodPolicy="Never")).failed("worker", 1, code=137).phase(phase)
    stops = [StopPod("demo-worker-0", "uid-demo-worker-0")] if phase is Phase.FAILED else []
    assert [action for stage in built.plan().stages for action in stage] == stops
