"""A job in a queue of Kueue, from submission to eviction and back; Kueue's own part is played by hand.

What Kueue would do follows its documentation and its Go types; nothing here was run against Kueue itself.
"""

from __future__ import annotations

from typing import Any

from paddlejob.api.resources import PADDLE_JOBS, WORKLOADS_V1BETA1, WORKLOADS_V1BETA2
from paddlejob.core.actions import Kind
from paddlejob.core.gang.model import FLAVORS
from paddlejob.kube.resource import PODS, Resource
from simkube.apiserver.rules.kinds import custom_resource
from simkube.build import job
from simkube.kubelet.outcomes import RunForever
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

QUEUED = job().ps(1).worker(2).metadata(labels={"kueue.x-k8s.io/queue-name": "team-a"})


class Kueue:
    """What Kueue says about the Workload `demo`."""

    def __init__(self, cluster: SimulatedCluster, workloads: Resource = WORKLOADS_V1BETA2) -> None:
        self.cluster = cluster
        self.workloads = workloads

    def install(self, *, flavor: bool = True) -> None:
        kind = Kind.WORKLOAD_V1BETA2 if self.workloads is WORKLOADS_V1BETA2 else Kind.WORKLOAD_V1BETA1
        self.cluster.server.register(custom_resource(self.workloads))
        self.cluster.server.register(custom_resource(FLAVORS[kind], status=False))
        self.flavors = FLAVORS[kind]
        if flavor:
            self.add_flavor()

    def add_flavor(self) -> None:
        head = {"apiVersion": self.workloads.api_version, "kind": "ResourceFlavor"}
        flavor = {**head, "metadata": {"name": "gpu"}, "spec": {"nodeLabels": {"gpu": "true"}}}
        self.cluster.server.create(self.flavors, flavor)

    def uninstall(self) -> None:
        self.cluster.server.routes.remove(self.workloads)

    def workload(self) -> dict[str, Any] | None:
        return self.cluster.server.get(self.workloads, "default", "demo")

    def says(self, **conditions: bool) -> None:
        """Set conditions, with an admission while there is a reservation."""
        held = {one["type"]: one for one in (self.workload().get("status") or {}).get("conditions") or ()}
        for kind, value in conditions.items():
            held[kind] = {
                "type": kind,
                "status": str(value),
                "reason": "Preempted" if kind == "Evicted" else "Test",
                "message": f"{kind} is {value}",
                "lastTransitionTime": "2030-01-01T00:00:00Z",
            }
        status: dict[str, Any] = {"conditions": list(held.values())}
        if conditions.get("QuotaReserved"):
            assigned = [{"name": role, "flavors": {"cpu": "gpu"}} for role in ("ps", "worker")]
            status["admission"] = {"clusterQueue": "all", "podSetAssignments": assigned}
        self.cluster.server.patch(self.workloads, "default", "demo", {"status": status}, subresource="status")

    def counts(self) -> list[int]:
        return [one["count"] for one in (self.workload() or {"spec": {"podSets": []}})["spec"]["podSets"]]

    def holds(self, kind: str) -> bool:
        conditions = (self.workload().get("status") or {}).get("conditions") or ()
        return any(one["type"] == kind and one["status"] == "True" for one in conditions)


async def admitted(cluster: SimulatedCluster, kueue: Kueue) -> None:
    """Submit the job and let Kueue admit it."""
    cluster.submit(QUEUED)
    await cluster.until(lambda: kueue.workload() is not None)
    await cluster.until_it_says("waiting in Kueue's queue team-a")
    assert cluster.pods() == []
    kueue.says(QuotaReserved=True, Admitted=True, Evicted=False)
    await cluster.until_phase("Running")


@simulated
async def test_a_job_runs_when_it_is_admitted_and_leaves_the_queue_when_it_is_done():
    cluster = SimulatedCluster()
    kueue = Kueue(cluster, WORKLOADS_V1BETA1)
    kueue.install()
    async with cluster.running(volcano=False):
        await admitted(cluster, kueue)
        assert {pod["spec"]["nodeSelector"]["gpu"] for pod in cluster.pods()} == {"true"}
        await cluster.until(lambda: kueue.holds("PodsReady"))
        await cluster.until_phase("Completed")
        await cluster.until(lambda: kueue.workload() is None)


@simulated
async def test_an_evicted_job_gives_its_quota_back_and_comes_again():
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    kueue = Kueue(cluster)
    kueue.install()
    async with cluster.running(volcano=False):
        await admitted(cluster, kueue)
        kueue.says(Evicted=True)
        await cluster.until(lambda: not kueue.holds("QuotaReserved"))
        assert cluster.pods() == []
        assert kueue.holds("Requeued")
        assert "admission" not in kueue.workload()["status"]
        kueue.says(Evicted=False, QuotaReserved=True, Admitted=True)
        await cluster.until_phase("Running")


@simulated
async def test_a_job_waits_until_kueue_is_installed():
    cluster = SimulatedCluster()
    kueue = Kueue(cluster)
    async with cluster.running(volcano=False):
        cluster.submit(QUEUED)
        await cluster.until_it_says("does not serve Kueue")
        kueue.install()
        await cluster.until(lambda: kueue.workload() is not None)


@simulated
async def test_an_admitted_job_waits_for_the_flavor_that_its_pods_are_to_have():
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    kueue = Kueue(cluster)
    kueue.install(flavor=False)
    async with cluster.running(volcano=False):
        cluster.submit(QUEUED)
        await cluster.until(lambda: kueue.workload() is not None)
        kueue.says(QuotaReserved=True, Admitted=True)
        await cluster.until_it_says("gpu")
        assert cluster.pods() == []
        kueue.add_flavor()
        await cluster.until_phase("Running", within_seconds=20)
        assert {pod["spec"]["nodeSelector"]["gpu"] for pod in cluster.pods()} == {"true"}


@simulated
async def test_a_running_job_survives_the_removal_of_kueue():
    cluster = SimulatedCluster()
    kueue = Kueue(cluster)
    kueue.install()
    async with cluster.running(volcano=False):
        await admitted(cluster, kueue)
        kueue.uninstall()
        await cluster.until_phase("Completed")


@simulated
async def test_suspending_leaves_the_queue_and_resuming_joins_it_again():
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    kueue = Kueue(cluster)
    kueue.install()
    async with cluster.running(volcano=False):
        await admitted(cluster, kueue)
        cluster.edit(suspend=True)
        await cluster.until(lambda: kueue.workload() is None and not cluster.pods())
        cluster.edit(suspend=False)
        await cluster.until(lambda: kueue.workload() is not None)
        kueue.says(QuotaReserved=True, Admitted=True)
        await cluster.until_phase("Running")


@simulated
async def test_a_resized_job_requests_admission_again():
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    kueue = Kueue(cluster)
    kueue.install()
    async with cluster.running(volcano=False):
        await admitted(cluster, kueue)
        cluster.edit(worker={"replicas": 3})
        await cluster.until(lambda: kueue.counts() == [1, 3])
        kueue.says(QuotaReserved=True, Admitted=True)
        await cluster.until_phase("Running")
        assert len(cluster.pods()) == 4


@simulated
async def test_a_job_with_another_label_waits_in_another_queue():
    cluster = SimulatedCluster()
    kueue = Kueue(cluster)
    kueue.install()
    async with cluster.running(volcano=False):
        cluster.submit(QUEUED)
        await cluster.until_it_says("waiting in Kueue's queue team-a")
        labels = {"kueue.x-k8s.io/queue-name": "team-b"}
        cluster.server.patch(PADDLE_JOBS, "default", "demo", {"metadata": {"labels": labels}})
        await cluster.until_it_says("waiting in Kueue's queue team-b")
        assert kueue.workload()["spec"]["queueName"] == "team-b"


@simulated
async def test_a_running_job_without_label_restarts_after_a_failure():
    cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
    kueue = Kueue(cluster)
    kueue.install()
    async with cluster.running(volcano=False):
        await admitted(cluster, kueue)
        labels = {"kueue.x-k8s.io/queue-name": None}
        cluster.server.patch(PADDLE_JOBS, "default", "demo", {"metadata": {"labels": labels}})
        cluster.server.delete(PODS, "default", "demo-worker-1")
        await cluster.until(lambda: cluster.status().get("attempt") == 1)
        await cluster.until_phase("Running")
        assert kueue.workload() is None
