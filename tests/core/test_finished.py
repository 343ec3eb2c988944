"""Workers that have succeeded stay so, whatever becomes of their pods."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.v1 import Phase
from paddlejob.core.actions import Create, Kind
from simkube.build import job, snapshot

NO_GLOO = job().ps(1).worker(3).spec(withGloo=0)
OF = {
    "collective": job().worker(3),
    "PS with gloo": job().ps(1).worker(3),
    "PS without gloo": NO_GLOO,
    "called by name": job().worker(3).spec(intranet="Service"),
}


def live(of):
    built = snapshot(of).pods_with_addresses()
    if built.spec.intranet == "Service":
        built.services()
    return settled(settled(built.config()).pods_running())


def settled(built):
    return built.status(built.plan().status)


def remove(built, name: str):
    del built._pods[next(replica for replica in built._pods if str(replica) == name)]
    return built


def created(plan) -> list[str]:
    return [
        action.name
        for stage in plan.stages
        for action in stage
        if isinstance(action, Create) and action.kind is Kind.POD
    ]


@pytest.mark.parametrize("of", OF.values(), ids=OF.keys())
def test_a_finished_pod_may_be_drained_or_collected(of):
    built = settled(live(of).succeeded("worker", 1))
    assert built.job.status.succeeded_workers == "1"
    plan = remove(built, "worker-1").plan()
    assert (plan.stages, plan.status.attempt, plan.status.phase) == ((), 0, Phase.RUNNING)
    assert plan.status.message.startswith("1 worker done, ")
    assert (plan.status.worker.ready, plan.status.worker.succeeded) == ("2/3", 1)
    assert plan.status.worker.replicas == 2


@pytest.mark.parametrize("of", OF.values(), ids=OF.keys())
def test_and_counts_when_the_others_are_done(of):
    built = settled(live(of).succeeded("worker", 1))
    remove(built, "worker-1").succeeded("worker", 0)
    remove(settled(built), "worker-0").succeeded("worker", 2)
    assert built.plan().status.message == "all 3 workers succeeded"


def test_even_when_all_pods_are_gone():
    built = settled(live(job().worker(2)).succeeded("worker", 0))
    built.succeeded("worker", 1)
    built.status(msgspec.structs.replace(built.job.status, succeeded_workers="0-1"))
    built._pods.clear()
    assert built.plan().status.phase is Phase.COMPLETED


def test_a_finished_worker_that_is_being_deleted_is_not_lost():
    built = settled(live(OF["collective"]).succeeded("worker", 1)).leaving("worker", 1)
    assert built.plan().status.attempt == 0


def test_a_pod_that_exits_well_because_it_is_deleted_has_not_finished():
    """Programs save and exit with code 0 when they get SIGTERM."""
    built = live(OF["collective"]).succeeded("worker", 1).leaving("worker", 1)
    plan = built.plan()
    assert (plan.status.attempt, plan.status.succeeded_workers) == (1, "")


def test_a_restart_of_all_pods_runs_finished_workers_again():
    built = settled(live(OF["collective"]).succeeded("worker", 1))
    plan = built.failed("worker", 0, code=137).plan()
    assert (plan.status.attempt, plan.status.succeeded_workers) == (1, "")
    built.status(plan.status).later(5)._pods.clear()
    assert len(created(built.plan())) == 3


def test_a_worker_that_is_replaced_alone_still_finds_the_finished_one_among_its_peers():
    built = settled(live(NO_GLOO).succeeded("worker", 1))
    remove(built, "worker-1").failed("worker", 2, code=143)
    settled(built)
    assert created(settled(remove(built, "worker-2")).plan()) == ["demo-worker-2"]
    before = dict(built._config)
    built.waiting("worker", 2)
    data = built.plan().stages[0][0].manifest["data"]
    same = ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_PSERVERS_IP_PORT_LIST")
    assert [data[key] for key in same] == [before[key] for key in same]


def test_an_address_that_another_pod_has_got_since_is_not_listed_twice():
    built = settled(live(NO_GLOO).succeeded("worker", 1))
    remove(built, "worker-1").failed("worker", 2, code=143)
    settled(remove(settled(built), "worker-2"))
    built.waiting("worker", 2)._pods[built.replicas()[3]]["status"]["podIP"] = "10.0.2.2"
    data = built.plan().stages[0][0].manifest["data"]
    assert data["PADDLE_TRAINERS"] == "10.0.2.1,demo-worker-1.default,10.0.2.2"


def test_a_sidecar_that_fails_after_the_worker_succeeded_breaks_nothing():
    built = settled(live(OF["collective"]).succeeded("worker", 1))
    built.failed("worker", 1, code=1)
    plan = built.plan()
    assert (plan.status.phase, plan.status.attempt, plan.status.worker.failed) == (Phase.RUNNING, 0, 0)


def test_suspension_forgets_them():
    built = settled(live(OF["collective"]).succeeded("worker", 1))
    resting = snapshot(job().worker(3).spec(suspend=True)).status(built.job.status)
    assert resting.plan().status.succeeded_workers == ""


def test_a_worker_beyond_the_new_size_is_forgotten():
    built = settled(live(NO_GLOO).succeeded("worker", 2))
    smaller = snapshot(job().ps(1).worker(2).spec(withGloo=0)).status(built.job.status)
    smaller._pods, smaller._config = built._pods, built._config
    assert smaller.plan().status.succeeded_workers == ""
