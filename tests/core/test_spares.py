"""Spares, as `plan` decides about them."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.api import names
from paddlejob.api.index_set import format_moves, parse_moves
from paddlejob.api.names import Env
from paddlejob.api.v1 import PaddleJobStatus, Role
from paddlejob.core.actions import Create, Kind, ReplaceConfig
from paddlejob.core.attempts.processes import Process, ProcessState
from paddlejob.core.gang import kueue
from paddlejob.core.gang.model import Scheduling
from paddlejob.core.observed import observe
from paddlejob.core.pod_set import Attempts, Replica, pod_set_of, rank_of, worker_of
from paddlejob.core.policy.success import success
from paddlejob.core.recorder import Recorder
from paddlejob.core.render import render_pod
from simkube.build import JobBuilder, SnapshotBuilder, job, snapshot

RECORDER = Recorder.of({"paddlejob_recorder.py": "1"}, "https://operator:8443", by_default=True)


def collective(**spec) -> JobBuilder:
    return job().worker(2).spec(spares=1, **spec)


def created(plan) -> dict[str, dict]:
    return {
        action.name: action.manifest
        for stage in plan.stages
        for action in stage
        if isinstance(action, Create) and action.kind is Kind.POD
    }


def cluster(of: JobBuilder) -> SnapshotBuilder:
    built = snapshot(of).serves()
    built.recorder, built.has_recorder = RECORDER, True
    return built


def test_the_spares_are_created_with_the_workers():
    found = created(cluster(collective()).plan())
    assert list(found) == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]
    marked = [name for name, pod in found.items() if names.ANNOTATION_SPARE in pod["metadata"]["annotations"]]
    assert marked == ["demo-worker-2"]


@pytest.mark.parametrize("of", [job().worker(2), collective()], ids=["no spares", "a local run"])
def test_there_is_no_spare(of):
    built = cluster(of) if not of.manifest["spec"].get("spares") else snapshot(of)
    assert list(created(built.plan())) == ["demo-worker-0", "demo-worker-1"]


def test_a_cluster_with_ipv6_has_no_spares():
    plan = cluster(collective()).with_settings(pods_have_ipv6=True).plan()
    assert list(created(plan)) == ["demo-worker-0", "demo-worker-1"]


def test_the_rank_of_a_spare_comes_from_keys_of_its_own():
    built = cluster(collective())
    pods = [render_pod(built.context(), Replica(Role.WORKER, 2), is_spare=each) for each in (True, False)]
    spare, worker = ({each["name"]: each for each in pod["spec"]["containers"][0]["env"]} for pod in pods)
    for name in (Env.TRAINER_ID, Env.RANK, Env.GLOBAL_RANK):
        assert worker[name]["value"] == "2"
        assert spare[name]["valueFrom"]["configMapKeyRef"]["key"].startswith(names.SPARE_GUARD)
    keys = [each[Env.ATTEMPT]["valueFrom"]["configMapKeyRef"]["key"] for each in (spare, worker)]
    assert keys[0] != keys[1]
    assert spare[Env.CURRENT_ENDPOINT]["value"] == "$(POD_IP):$(PADDLE_PORT)"
    order = list(spare)
    assert order.index(Env.POD_IP) < order.index(Env.CURRENT_ENDPOINT)


GANGS = {
    "all pods": ({}, 3),
    "as many as the job says": ({"schedulingPolicy": {"minAvailable": 2}}, 2),
}


@pytest.mark.parametrize(("spec", "pods"), GANGS.values(), ids=GANGS)
def test_a_gang_has_room_for_the_spares(spec, pods):
    built = snapshot(collective(**spec)).serves(Kind.POD_GROUP)
    plan = built.with_settings(scheduling=Scheduling.VOLCANO).plan()
    creations = [each for stage in plan.stages for each in stage if isinstance(each, Create)]
    (group,) = (each for each in creations if each.kind is Kind.POD_GROUP)
    assert group.manifest["spec"]["minMember"] == pods


def test_a_workload_has_room_for_the_spares():
    assert [(each["name"], each["count"]) for each in kueue._pod_sets(collective().build())] == [
        ("worker", 3)
    ]


@pytest.mark.parametrize("recorder", [None, RECORDER], ids=["no recorder", "recorder"])
def test_spares_without_the_recorder_are_reported(recorder):
    built = cluster(collective())
    built.recorder = recorder
    assert [event.reason for event in built.plan().events] == ([] if recorder else ["NoEffect"])


MOVES = {"": {}, "1:4": {1: 4}, "0:3,2:5": {0: 3, 2: 5}}


@pytest.mark.parametrize(("text", "moves"), MOVES.items())
def test_moves_are_written_and_read_back(text, moves):
    assert (format_moves(moves), parse_moves(text)) == (text, moves)


@pytest.mark.parametrize("text", ["x", "1", "1:", ":1", "1:2:3", "1:x", "-1:2", "1:99999999999"])
def test_invalid_moves_are_none(text):
    assert parse_moves(text) == {}


@pytest.mark.parametrize("text", ["1:0", "7:2"], ids=["a worker with two ranks", "a rank that is not there"])
def test_moves_that_do_not_fit_are_ignored(text):
    built = cluster(collective())
    found = pod_set_of("demo", built.spec.roles, (), Attempts(moved_ranks=text), spares=1)
    assert found.wanted == (Replica(Role.WORKER, 0), Replica(Role.WORKER, 1))


def test_ranks_and_workers_belong_together():
    status = PaddleJobStatus(moved_ranks="1:2")
    assert [worker_of(status, rank).index for rank in (0, 1)] == [0, 2]
    assert [rank_of(status, Replica(Role.WORKER, index)) for index in (0, 2)] == [0, 1]
    assert rank_of(status, Replica(Role.PS, 2)) == 2
    found = pod_set_of("demo", cluster(collective()).spec.roles, (), Attempts.of(status), spares=1)
    assert [each.index for each in found.wanted] == [0, 2], "in the order of ranks"
    assert [each.index for each in found.idle] == [1]
    assert [found.rank(each) for each in found.wanted] == [0, 1]


def test_the_first_rank_decides_about_success_wherever_it_is():
    built = snapshot(job().worker(3)).pods_running().succeeded("worker", 2)
    roles = snapshot(job().worker(2)).spec.roles
    for moved, done in (("0:2", True), ("", False)):
        pods = pod_set_of("demo", roles, built.build().pods, Attempts(moved_ranks=moved))
        assert bool(success(pods, "Worker0")) is done


def live() -> SnapshotBuilder:
    """Return a job that runs, with a spare that waits for its rank."""
    built = cluster(collective())
    manifest = created(built.plan())["demo-worker-2"]
    built.pods_with_addresses().config().pods_running()
    for index in range(2):
        built.supervised("worker", index, Process(0))
    built.waiting("worker", 2)
    spare = next(pod for each, pod in built._pods.items() if each.index == 2)
    spare["metadata"]["annotations"] = manifest["metadata"]["annotations"]
    return built.status(built.plan().status)


def test_a_ready_spare_takes_the_rank_of_a_lost_worker():
    built = live()
    assert built.job.status.spares == "1/1"
    status = built.gone("worker", 1).plan().status
    assert (status.moved_ranks, status.process_attempt, status.base_attempt) == ("1:2", 1, 0)
    assert status.replaced_workers == "1"
    built.status(status)
    assert observe(built.build()).pods.members.keys() == {Replica(Role.WORKER, 0), Replica(Role.WORKER, 2)}
    built.supervised("worker", 0, Process(0, ProcessState.DOWN, 137))
    plan = built.plan()
    assert list(created(plan)) == ["demo-worker-1"]
    assert names.ANNOTATION_SPARE in created(plan)["demo-worker-1"]["metadata"]["annotations"]
    (write,) = (each for stage in plan.stages for each in stage if isinstance(each, ReplaceConfig))
    data = write.manifest["data"]
    keys = {name: text for name, text in data.items() if name.startswith(names.SPARE_GUARD)}
    assert sorted(keys.values()) == ["1", "1"], "its attempt and its rank"
    address = next(pod for each, pod in built._pods.items() if each.index == 2)["status"]["podIP"]
    assert data[Env.TRAINER_ENDPOINTS].split(",")[1].startswith(f"{address}:")


def test_a_spare_without_an_address_takes_no_rank():
    built = live()
    spare = next(pod for each, pod in built._pods.items() if each.index == 2)
    spare["status"].pop("podIP")
    assert built.gone("worker", 1).plan().status.moved_ranks == ""


def test_a_spare_on_a_suspect_node_takes_no_rank():
    built = live()
    spare = next(pod for each, pod in built._pods.items() if each.index == 2)
    spare["spec"] = {**spare.get("spec", {}), "nodeName": "bad"}
    built.status(msgspec.structs.replace(built.job.status, suspect_nodes=("bad",)))
    assert built.gone("worker", 1).plan().status.moved_ranks == ""


def test_new_pods_for_all_take_back_the_moves():
    built = live()
    moved = msgspec.structs.replace(built.job.status, moved_ranks="1:2", consecutive_restarts=2)
    plan = built.status(moved).failed("worker", 0, code=137).plan()
    assert (plan.status.moved_ranks, plan.status.base_attempt) == ("", plan.status.attempt)


def test_a_size_that_the_moves_do_not_fit_gets_new_pods():
    built = live()
    moved = msgspec.structs.replace(built.job.status, moved_ranks="1:2", world_size=None)
    plan = built.status(moved).respecified(job().worker(3).spec(spares=1)).plan()
    assert (plan.status.moved_ranks, plan.status.attempt, plan.status.base_attempt) == ("", 1, 1)
