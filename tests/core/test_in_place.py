"""Restarts in place, as `plan` decides them."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.names import Env, Reason
from paddlejob.api.v1 import Failure, Phase, Role
from paddlejob.core.actions import AnnotatePod, Create, Delete, Kind, ReplaceConfig
from paddlejob.core.attempts import in_place
from paddlejob.core.attempts.new_attempt import NewAttempt
from paddlejob.core.attempts.processes import STOP_SECONDS, Process, ProcessState
from paddlejob.core.observed import observe
from paddlejob.core.recorder import Recorder
from paddlejob.training.findings import Hang, Slowdown
from simkube.build import JobBuilder, SnapshotBuilder, job, snapshot

RECORDER = Recorder.of({"paddlejob_recorder.py": "1"}, "https://operator:8443", by_default=True)


def down(code: int = 1, attempt: int = 0, **fields) -> Process:
    return Process(attempt, ProcessState.DOWN, code, **fields)


def live(of: JobBuilder | None = None) -> SnapshotBuilder:
    """Return a snapshot that has been running for a while, with supervisors that report."""
    built = snapshot(of or job().worker(3))
    built.recorder, built.has_recorder = RECORDER, True
    built.pods_with_addresses().config().pods_running()
    for replica in built.replicas():
        built.supervised(replica.role, replica.index, Process(0))
    return built.status(built.plan().status)


def begun(built: SnapshotBuilder) -> SnapshotBuilder:
    """Write the reconcile that begins an attempt."""
    return built.status(built.plan().status)


def failed_in_place(of: JobBuilder | None = None) -> SnapshotBuilder:
    built = begun(live(of).supervised("worker", 1, down(137)))
    assert built.job.status.process_attempt == 1
    return built.later(60)


def actions(plan, kind: type = object) -> list:
    return [action for stage in plan.stages for action in stage if isinstance(action, kind)]


def deleted(plan) -> list[str]:
    return sorted(action.name for action in actions(plan, Delete))


def written(plan) -> dict[str, str] | None:
    """Return the data that is written to the ConfigMap."""
    found = [each.manifest["data"] for each in actions(plan, ReplaceConfig)]
    found += [each.manifest["data"] for each in actions(plan, Create) if each.kind is Kind.CONFIG_MAP]
    return found[0] if found else None


def attempts(plan) -> tuple[int, int, int]:
    return plan.status.attempt, plan.status.base_attempt, plan.status.process_attempt


# --- which attempts keep their pods


KEPT = {
    "a rank of a collective job fails": live().supervised("worker", 1, down(137)),
    "all ranks fail": live()
    .supervised("worker", 0, down(134))
    .supervised("worker", 1, down(137))
    .supervised("worker", 2, down(134)),
    "a server fails": live(job().ps(2).worker(2)).supervised("ps", 1, down(137)),
    "a heter worker fails": live(job().ps(1).worker(2).heter(1)).supervised("heter", 0, down(137)),
    "a worker with gloo fails": live(job().ps(1).worker(2)).supervised("worker", 0, down(137)),
    "pods that are called by name": live(
        job().worker(2, pod={"restartPolicy": "Never"}).spec(intranet="Service")
    ).supervised("worker", 1, down(137)),
}


@pytest.mark.parametrize("built", KEPT.values(), ids=KEPT)
def test_the_programs_restart_and_all_pods_stay(built):
    plan = built.plan()
    assert attempts(plan) == (1, 0, 1)
    assert (plan.status.phase, plan.status.restarts, plan.status.world_size) == (Phase.RESTARTING, 1, None)
    assert not plan.stages


def edited(built: SnapshotBuilder) -> SnapshotBuilder:
    return built.respecified(job().worker(3, image="paddle:other"))


def without(built: SnapshotBuilder, *uids: str) -> SnapshotBuilder:
    for uid in uids:
        del built.processes[uid]
    return built


ALL = tuple(f"uid-demo-worker-{index}" for index in range(3))
RECREATED = {
    "inPlace is switched off": live().respecified(job().worker(3).spec(restartPolicy={"inPlace": False})),
    "a worker has finished": live().succeeded("worker", 0),
    "the template was edited": edited(live()),
    "no supervisor reports": without(live(), *ALL),
    "a server has no supervisor": without(live(job().ps(1).worker(2)), "uid-demo-ps-0"),
}


@pytest.mark.parametrize("built", RECREATED.values(), ids=RECREATED)
def test_all_pods_are_recreated(built):
    if built.processes:
        built.supervised("worker", 1, down(137))
    else:
        built.failed("worker", 1, code=137)
    plan = built.plan()
    assert attempts(plan) == (1, 1, 0)
    assert len(deleted(plan)) == len(built.replicas())


def test_the_third_restart_in_a_row_recreates_all_pods():
    built = live()
    for attempt in (1, 2):
        begun(built.supervised("worker", attempt, down(137, attempt - 1)))
        assert built.job.status.process_attempt == attempt
        for index in range(3):
            built.supervised("worker", index, Process(attempt))
        data = written(built.later(400).plan())
        begun(built.config(data))
        assert built.job.status.phase is Phase.RUNNING
    plan = built.supervised("worker", 0, down(137, 2)).plan()
    assert attempts(plan) == (3, 3, 2)
    assert deleted(plan) == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]


def test_a_job_that_trained_for_long_restarts_in_place_again():
    built = live()
    built.phase(Phase.RUNNING, consecutive_restarts=5).later(3600)
    assert attempts(built.supervised("worker", 1, down(137)).plan()) == (1, 0, 1)


MIXED = {
    "the container of a pod has ended": live().failed("worker", 1, code=137),
    "its supervisor does not report": without(live().failed("worker", 1, code=137), ALL[1]),
    "a pod was deleted": live().gone("worker", 1),
    "a pod is being deleted": live().leaving("worker", 1),
}


@pytest.mark.parametrize("built", MIXED.values(), ids=MIXED)
def test_a_lost_pod_is_replaced_alone(built):
    plan = built.plan()
    assert attempts(plan) == (1, 0, 1)
    assert set(deleted(plan)) <= {"demo-worker-1"}
    begun(built)
    built._pods.pop(next((each for each in built._pods if each.index == 1), None), None)
    built.processes.pop(ALL[1], None)
    for index in (0, 2):
        built.supervised("worker", index, down(137))
    plan = built.later(400).plan()
    assert [each.name for each in actions(plan, Create) if each.kind is Kind.POD] == ["demo-worker-1"]
    assert written(plan) is None, "it has no address yet"
    begun(built).waiting("worker", 1)
    plan = built.plan()
    data = written(plan)
    assert data[Env.PROCESS_ATTEMPT] == "1"
    assert [each.name for each in actions(plan, AnnotatePod)] == ["demo-worker-1"]


def test_a_server_that_cannot_stay_is_replaced_with_all_others():
    plan = live(job().ps(2).worker(2)).failed("ps", 1, code=137).plan()
    assert attempts(plan) == (1, 1, 0)


def test_the_pod_that_fails_twice_in_a_row_is_replaced():
    built = begun(live().supervised("worker", 1, down(137)))
    for index in range(3):
        built.supervised("worker", index, Process(1))
    built.supervised("worker", 1, down(137, 1)).config({Env.PROCESS_ATTEMPT: "1"})
    plan = built.later(400).plan()
    assert attempts(plan) == (2, 0, 2)
    assert deleted(plan) == ["demo-worker-1"]


def test_a_straggler_is_replaced_and_the_others_stay():
    built = live(job().worker(3).spec(stragglerPolicy="Replace"))
    built.findings = (Slowdown(0, "demo-worker-2", "worker-2 is slow", is_lasting=True),)
    plan = built.plan()
    assert plan.status.last_failure.reason == Reason.STRAGGLER
    assert attempts(plan) == (1, 0, 1)
    assert deleted(plan) == ["demo-worker-2"]
    assert plan.status.suspect_nodes == ("node-0",)


def test_a_pod_whose_node_is_blamed_is_replaced():
    built = live().supervised("worker", 1, down(128))
    member = observe(built.build()).pods.active[1]
    failure = Failure(0, "demo-worker-1", "Error")
    new = NewAttempt(
        Phase.RESTARTING, Reason.RESTARTING, "", to_delete=(member,), failure=failure, blames_node=True
    )
    kept = in_place.keep_pods(observe(built.build()), new)
    assert (kept.in_place, kept.to_delete) == (True, (member,))


def test_a_job_that_hangs_restarts_in_place():
    built = live(job().worker(3).spec(hangPolicy="Restart"))
    built.findings = (Hang(0, 100, 300, ("demo-worker-1 on node-0",), "no step for 5m"),)
    plan = built.plan()
    assert (attempts(plan), plan.status.last_failure.reason) == ((1, 0, 1), Reason.HUNG)
    assert not plan.stages


def test_a_job_that_has_to_give_back_its_quota_keeps_no_pods():
    new = NewAttempt(Phase.RESTARTING, Reason.QUOTA_LOST, "")
    assert in_place.keep_pods(observe(live().build()), new) is new


def test_a_worker_that_others_do_not_depend_on_is_replaced_alone():
    plan = live(job().ps(1).worker(2).spec(withGloo=0)).supervised("worker", 1, down(137)).plan()
    assert attempts(plan) == (1, 0, 0)
    assert deleted(plan) == ["demo-worker-1"]


def test_scaling_recreates_all_pods():
    plan = live().respecified(job().worker(2)).plan()
    assert attempts(plan) == (1, 1, 0)


# --- from the decision to the order


def test_the_config_map_is_written_when_the_last_old_program_has_ended():
    built = failed_in_place()
    old = built.build().config_map.data
    for index in (0, 2):
        plan = built.plan()
        assert (written(plan), actions(plan)) == (None, [])
        assert plan.requeue_after_seconds == STOP_SECONDS
        built.supervised("worker", index, down(137))
    plan = built.plan()
    data = written(plan)
    assert actions(plan, AnnotatePod) == []
    assert data[Env.PROCESS_ATTEMPT] == "1"
    assert int(data[Env.PADDLE_PORT]) > int(old[Env.PADDLE_PORT])
    assert data[Env.MASTER].rpartition(":")[0] == old[Env.MASTER].rpartition(":")[0]
    assert data[Env.MASTER] != old[Env.MASTER]
    begun(built.config(data))
    for index in range(3):
        built.supervised("worker", index, Process(1))
    plan = built.plan()
    assert not plan.stages
    assert (plan.status.phase, plan.status.world_size.attempt) == (Phase.RUNNING, 1)


def test_a_delayed_restart_waits_with_the_config_map():
    restarted = msgspec.structs.replace(live().job.status, consecutive_restarts=1)
    built = begun(live().status(restarted).supervised("worker", 1, down(137)))
    retry = built.job.status.retry_time
    assert retry is not None
    for index in range(3):
        built.supervised("worker", index, down(137))
    plan = built.plan()
    assert (written(plan), plan.status.reason) == (None, Reason.WAITING_TO_RESTART)
    built.later((retry - built.now).total_seconds() + 1)
    assert written(built.plan()) is not None


def test_a_pod_that_does_not_stop_is_replaced():
    built = failed_in_place().supervised("worker", 2, down(137))
    built.attempt_seconds = STOP_SECONDS
    plan = built.plan()
    assert (deleted(plan), written(plan)) == (["demo-worker-0"], None)
    assert plan.requeue_after_seconds is None or plan.requeue_after_seconds > 0
    begun(built).leaving("worker", 0)
    assert written(built.plan()) is None, "its program may still run"
    built.gone("worker", 0)
    plan = built.plan()
    assert [each.name for each in actions(plan, Create)] == ["demo-worker-0"]
    assert attempts(plan) == (1, 0, 1)


def test_a_server_that_does_not_stop_is_replaced_alone():
    built = begun(live(job().ps(1).worker(2)).supervised("worker", 1, down(137))).later(60)
    built.supervised("worker", 0, down(137))
    built.attempt_seconds = STOP_SECONDS
    assert deleted(built.plan()) == ["demo-ps-0"]
    built.gone("ps", 0)
    plan = begun(built).plan()
    assert attempts(plan) == (1, 0, 1)
    assert [each.name for each in actions(plan, Create) if each.kind is Kind.POD] == ["demo-ps-0"]


def test_a_new_operator_waits_until_all_supervisors_have_reported():
    built = failed_in_place()
    built.processes.clear()
    plan = built.plan()
    assert (actions(plan), plan.requeue_after_seconds) == ([], STOP_SECONDS)
    for index in range(3):
        built.supervised("worker", index, down(137))
    assert written(built.plan()) is not None


def published(of: JobBuilder | None = None) -> SnapshotBuilder:
    """Return a restart in place whose ConfigMap was just written."""
    built = failed_in_place(of)
    for replica in built.replicas():
        built.supervised(replica.role, replica.index, down(137))
    return begun(built.config(written(built.plan())))


def test_a_new_operator_knows_by_the_config_map_that_no_old_program_runs():
    built = published()
    built.processes.clear()
    built.attempt_seconds = STOP_SECONDS
    plan = built.plan()
    assert not plan.stages
    assert plan.status.phase is Phase.RUNNING


def test_a_pod_that_is_replaced_after_the_order_restarts_the_programs_that_hold_its_address():
    built = published()
    for index in (0, 1):
        built.supervised("worker", index, Process(1))
    built.failed("worker", 2, code=137)
    plan = built.plan()
    assert deleted(plan) == ["demo-worker-2"], "its supervisor gave up before it got the order"
    assert attempts(plan) == (1, 0, 1)
    begun(built).gone("worker", 2)
    built.processes.pop(ALL[2])
    built.waiting("worker", 2)
    built._pods[next(each for each in built._pods if each.index == 2)]["status"]["podIP"] = "10.0.2.99"
    plan = built.plan()
    assert attempts(plan) == (2, 0, 2)
    assert plan.status.last_failure.reason == Reason.ADDRESS_CHANGED
    assert deleted(plan) == ["demo-worker-2"], "it has no supervisor yet"


@pytest.mark.parametrize("is_open", [True, False])
def test_no_pod_is_created_that_would_start_with_the_address_of_a_lost_one(is_open):
    built = begun(live().gone("worker", 1)).later(60)
    built.processes.pop(ALL[1], None)
    for index in (0, 2):
        built.supervised("worker", index, down(137))
    built.waiting("worker", 1)
    data = written(built.plan())
    key = next(name for name in data if name.startswith(f"{Env.ATTEMPT}_1_"))
    begun(built.config(data if is_open else {name: text for name, text in data.items() if name != key}))
    built.supervised("worker", 0, Process(1)).failed("worker", 2, code=137)
    assert attempts(built.plan()) == ((2, 2, 1) if is_open else (1, 0, 1))


def test_a_server_that_is_replaced_after_the_order_restarts_the_programs_that_hold_its_address():
    of = job().ps(2).worker(2).spec(withGloo=0)
    built = begun(live(of).supervised("ps", 1, down(137))).later(60)
    for replica in built.replicas():
        built.supervised(replica.role, replica.index, down(137))
    begun(built.config(written(built.plan())))
    for replica in built.replicas():
        built.supervised(replica.role, replica.index, Process(1))
    assert attempts(built.plan()) == (1, 0, 1)
    built._pods[next(each for each in built._pods if each.role is Role.PS)]["status"]["podIP"] = "10.0.1.99"
    assert attempts(built.plan()) == (2, 0, 2)


def test_the_message_says_that_programs_restart_in_place():
    built = failed_in_place()
    assert built.plan().status.message == "worker-1 exited with code 137", "it is written once"
    built.attempt_seconds = STOP_SECONDS
    built.supervised("worker", 0, down(137)).supervised("worker", 2, down(137))
    assert "is restarted in place" in built.plan().status.message
