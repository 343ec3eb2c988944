"""Jobs that wait in a queue, on a simulated cluster: the advice is followed, and they are let in.

Volcano's scheduler is simulated; what Kueue says is put there by hand, in the words of its source.
"""

from __future__ import annotations

from paddlejob.api.resources import PADDLE_JOBS, VOLCANO_QUEUES, WORKLOADS_V1BETA2
from paddlejob.client.explain import explain_job
from paddlejob.core.actions import Kind
from paddlejob.core.gang.model import FLAVORS
from paddlejob.kube.client import PatchType
from paddlejob.kube.resource import Resource
from simkube.apiserver.rules.kinds import custom_resource
from simkube.build import job
from simkube.kubelet.outcomes import RunForever
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

CPU = {"resources": {"requests": {"cpu": "1"}}}
NO_QUOTA = "insufficient unused quota for cpu in flavor default, 1 more needed"
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")


def cluster() -> SimulatedCluster:
    return SimulatedCluster(behaviour=lambda *_: RunForever())


def create(of: SimulatedCluster, resource: Resource, name: str, **fields) -> None:
    metadata = {"name": name} | ({"namespace": "default"} if resource.namespaced else {})
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    of.server.create(resource, {**head, "metadata": metadata, **fields})


async def follow(of: SimulatedCluster, advice) -> None:
    assert advice.change is not None
    await of.client_of("user").patch(
        PADDLE_JOBS, "default", advice.change.name, list(advice.change.patch), patch_type=PatchType.JSON
    )


@simulated
async def test_a_queue_of_volcano_that_is_too_small():
    made = cluster()
    made.volcano.capacity = {"cpu": "2"}
    made.server.register(custom_resource(VOLCANO_QUEUES, status=False))
    create(made, VOLCANO_QUEUES, "default", spec={"capability": {"cpu": "2"}}, status={"state": "Open"})
    async with made.running("volcano"):
        made.submit(job().worker(3, **CPU))
        await made.until_it_says("capability of queue default is 2")
        found = await explain_job(made.client_of("user"), "default", "demo")
        assert found.cause == "WaitingForGang"
        assert found.rank == "worker-0"
        assert "queue default: cpu 0 of 2 in use, the gang needs 3" in found.findings[0].details
        assert found.advice[0].text == "lower spec.worker.replicas from 3 to 2"
        await follow(made, found.advice[0])
        await made.until_phase("Running")


@simulated
async def test_a_queue_of_kueue_that_is_full():
    made = cluster()
    made.server.register(custom_resource(WORKLOADS_V1BETA2))
    made.server.register(custom_resource(LOCAL_QUEUES, status=False))
    made.server.register(custom_resource(FLAVORS[Kind.WORKLOAD_V1BETA2]))
    create(made, LOCAL_QUEUES, "team-a", spec={"clusterQueue": "all"}, status={"pendingWorkloads": 1})
    async with made.running(volcano=False):
        made.submit(job().worker(3, **CPU).metadata(labels={"kueue.x-k8s.io/queue-name": "team-a"}))
        await made.until(lambda: made.server.get(WORKLOADS_V1BETA2, "default", "demo") is not None)
        told = f"couldn't assign flavors to pod set worker: {NO_QUOTA}"
        pending = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": told}
        status = {"conditions": [{**pending, "lastTransitionTime": "2030-01-01T00:00:00Z"}]}
        made.server.patch(WORKLOADS_V1BETA2, "default", "demo", {"status": status}, subresource="status")
        await made.until_it_says("1 more needed")
        found = await explain_job(made.client_of("user"), "default", "demo")
        assert found.summary == f"waiting in Kueue's queue team-a: {told}"
        assert found.findings[0].details == ("LocalQueue team-a of ClusterQueue all: 1 pending, 0 admitted",)
        assert found.advice[0].text == "lower spec.worker.replicas from 3 to 2"
        await follow(made, found.advice[0])
        await made.until(lambda: counts(made) == [2])


def counts(of: SimulatedCluster) -> list[int]:
    workload = of.server.get(WORKLOADS_V1BETA2, "default", "demo") or {"spec": {"podSets": []}}
    return [each["count"] for each in workload["spec"]["podSets"]]
