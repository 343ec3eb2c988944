"""The rules about ended jobs, kept and broken on purpose, and the ingredients that try them."""

from __future__ import annotations

import pytest

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.core import snapshot
from paddlejob.core.policy import cleanup
from paddlejob.kube.resource import PODS
from sim.evidence import LostEvidenceError
from sim.gangs import Gangs
from sim.hostile_tenant import FatObjects, SilentNodes, SlowWebhook
from sim.ingredient import Ingredient
from sim.ingredients import ContainerRestarts, Eviction, OperatorRestart, draw
from sim.invariants import BrokenInvariantError
from sim.persistent_fault import PersistentFault
from sim.pods_after_end import miscounted
from sim.scenario import Deed
from sim.simulation import Simulation, play
from sim.supervised import Supervised
from simkube.build import job
from simkube.faults.transport import FaultRates
from simkube.kubelet.outcomes import Evict

CALM = {
    "deeds": (),
    "crashes": (),
    "operators": 1,
    "rates": FaultRates(),
    "trouble": 0.0,
    "persistent_fault": PersistentFault(),
    "gangs": Gangs(),
    "mistake": None,
}
JUDGES_EARLY = ("MAX_PHASE_DELAY_SECONDS", 0.0)


def played(*ingredients: Ingredient, policy: str = "Never", workers: int = 1, **changes) -> Simulation:
    """Play a history of one job in which nothing else happens."""
    spec = {"cleanPodPolicy": policy, "backoffLimit": 0, **changes.pop("spec", {})}
    pod = {"restartPolicy": changes.pop("restarts", "Never")}
    built = job("job-0").worker(workers, pod=pod).spec(**spec)
    built.manifest["metadata"].pop("uid")
    return play(1, **{**CALM, "jobs": (built.manifest,), "ingredients": ingredients, **changes})


def status(simulation: Simulation) -> dict:
    [found] = simulation.server.objects(PADDLE_JOBS)
    return found["status"]


def evicted(code: int) -> Eviction:
    """Return the eviction by a node that shuts down: the exit code is always known."""
    evict = Evict(after_seconds=5, reason="Terminated", exit_code=code, grace_seconds=30)
    return Eviction("job-0", "worker", 0, evict)


def crash(times: int = 99) -> ContainerRestarts:
    return ContainerRestarts("job-0", index=0, times=times, exit_code=1, after_seconds=5)


@pytest.mark.parametrize("code", [0, 1, 137, 143])
def test_an_eviction_costs_a_job_nothing(code):
    ended = status(played(evicted(code)))
    assert (ended["phase"], ended["attempt"], ended.get("restarts", 0)) == ("Completed", 1, 0)


@pytest.mark.parametrize("code", [1, 137])
def test_a_verdict_against_an_evicted_pod_breaks_the_rule(code, monkeypatch):
    monkeypatch.setattr(snapshot, *JUDGES_EARLY)
    with pytest.raises(LostEvidenceError, match="job-0-worker-0 was evicted, and worker-0 exited"):
        played(evicted(code))


def test_a_job_that_completes_by_an_eviction_breaks_the_rule(monkeypatch):
    monkeypatch.setattr(snapshot, *JUDGES_EARLY)
    with pytest.raises(LostEvidenceError, match="job-0-worker-0 was evicted, and the job is Completed"):
        played(evicted(0))


@pytest.mark.parametrize(
    ("policy", "kept"), [("OnCompletion", 1), ("Never", 1), ("Always", 0), ("OnFailure", 0)]
)
def test_the_pod_that_failed_is_kept_as_the_policy_says(policy, kept):
    simulation = played(crash(), policy=policy)
    assert status(simulation)["phase"] == "Failed"
    assert len(simulation.server.objects(PODS)) == kept


@pytest.mark.parametrize("policy", ["OnCompletion", "Never"])
def test_a_deleted_pod_of_a_failed_job_breaks_the_rule(policy, monkeypatch):
    monkeypatch.setattr(cleanup, "_KEPT", ())
    with pytest.raises(ExceptionGroup) as caught:
        played(crash(), policy=policy)
    message = f"deleted a pod of a Failed job with {policy}"
    assert caught.group_contains(BrokenInvariantError, match=message)


def test_a_pod_of_a_failed_job_that_is_not_stopped_breaks_the_rule(monkeypatch):
    monkeypatch.setattr(cleanup, "_can_be_stopped", lambda _: False)
    built = job("job-0").ps(1).worker(1).metadata(uid="").spec(backoffLimit=0)
    with pytest.raises(BrokenInvariantError, match="'job-0-ps-0'] still run"):
        played(crash(), jobs=(built.manifest,))


def test_a_container_is_restarted_in_place():
    simulation = played(crash(times=2), restarts="OnFailure", spec={"backoffLimit": 2})
    assert (status(simulation)["phase"], status(simulation).get("attempt", 0)) == ("Completed", 0)
    assert [start.restarts for start in simulation.kubelet.started("job-0-worker-0")] == [0, 1, 2]


def test_an_operator_is_killed_in_a_pause():
    lives = []

    class Noted(OperatorRestart, frozen=True):
        async def act(self, simulation):
            lives.append(simulation._life)
            await super().act(simulation)
            lives.append(simulation._life.cancelling())

    suspend = (Deed(5.0, "suspend", "job-0", 2),)
    simulation = played(Noted(after_seconds=1, until_seconds=60), deeds=suspend)
    assert lives[1:] == [1]
    assert status(simulation)["phase"] == "Completed"


def test_every_ingredient_is_drawn_by_some_seed():
    built = job("job-0").worker(2).manifest
    drawn = {type(each) for seed in range(100) for each in draw(seed, (built,), 60.0)}
    assert drawn == {
        ContainerRestarts,
        Eviction,
        OperatorRestart,
        SlowWebhook,
        SilentNodes,
        FatObjects,
        Supervised,
    }


COUNTS = {
    "as many as there are": ({"running": 1, "replicas": 1}, ""),
    "more than run": ({"running": 2, "replicas": 1}, "counts 2 running workers"),
    "more than exist": ({"running": 1, "replicas": 3}, "counts 3 workers"),
}


@pytest.mark.parametrize(("counts", "complaint"), COUNTS.values(), ids=COUNTS)
def test_an_ended_job_counts(counts, complaint):
    labels = {"batch.paddlepaddle.org/role": "worker", "batch.paddlepaddle.org/index": "0"}
    pod = {"metadata": {"name": "demo-worker-0", "labels": labels}, "status": {"phase": "Running"}}
    found = miscounted({"status": {"worker": counts}}, [pod])
    assert complaint in found
    assert bool(complaint) is bool(found)
