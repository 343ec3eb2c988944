"""What is read, with which rights, and at what cost."""

from __future__ import annotations

import sys

import msgspec
import pytest

from paddlejob.api.resources import PADDLE_JOBS as JOBS
from paddlejob.api.resources import VOLCANO_POD_GROUPS, VOLCANO_QUEUES, WORKLOADS_V1BETA2
from paddlejob.client.explain import explain_job
from paddlejob.client.explain.demand import NANO
from paddlejob.client.explain.gather import CLAIMS, LIMIT_RANGES, QUOTAS, gather
from paddlejob.core.gang.model import GangSystem
from paddlejob.history.record import AttemptRecord, RankEnd, Record, Summary, manifest, object_key
from paddlejob.kube.errors import NotFoundError
from paddlejob.kube.resource import CONFIG_MAPS, NODES, PODS, Resource
from simkube.apiserver.rules.kinds import ResourceType, custom_resource
from simkube.apiserver.server import ApiServer
from simkube.build import job
from tests.client.explain import reading
from tests.client.explain.scene import workload
from tests.support.simulated import simulated

PENDING = {"phase": "Pending", "reason": "WaitingForPods", "message": "waiting for 2 pods"}
FORBIDDEN = ("/nodes", "/resourcequotas", "/limitranges", "/events", "/pods", "/persistentvolumeclaims")
MOUNTED = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
FAILURE = {
    "attempt": 1,
    "pod": "demo-worker-0",
    "reason": "Error",
    "exitCode": 1,
    "message": "worker-0 failed",
}


def cluster(built=None, **status):
    """A server with a job."""
    server = reading.server()
    for resource in (QUOTAS, LIMIT_RANGES, CLAIMS):
        server.register(ResourceType(resource=resource))
    manifest = (built or job().worker(2)).manifest
    labels = manifest["metadata"].get("labels") or {}
    body = {**manifest, "metadata": {"name": "demo", "namespace": "default", "labels": labels}}
    server.create(JOBS, body)
    server.patch(JOBS, "default", "demo", {"status": status or PENDING}, subresource="status")
    return server


def add_pod(server, name="demo-worker-0", *, owner="", node="", attempt=0, status=None, namespace="default"):
    uid = owner or server.get(JOBS, "default", "demo")["metadata"]["uid"]
    reference = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": "demo",
        "uid": uid,
        "controller": True,
    }
    group = JOBS.group
    labels = {f"{group}/job-name": "demo", f"{group}/attempt": str(attempt), "paddle-res-type": "worker"}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [reference]}
    resources = {"requests": {"cpu": "3"}}
    spec = {"nodeName": node, "containers": [{"name": "paddle", "image": "x", "resources": resources}]}
    server.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    if status:
        server.patch(PODS, namespace, name, {"status": status}, subresource="status")


def add(server, resource: Resource, name: str, **fields):
    metadata = {"name": name} | ({"namespace": "default"} if resource.namespaced else {})
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    server.create(resource, {**head, "metadata": metadata, **fields})


@simulated
async def test_a_job_that_does_not_exist_is_an_error():
    with pytest.raises(NotFoundError):
        await explain_job(reading.client(reading.server()), "default", "demo")


@simulated
async def test_what_may_not_be_read_is_a_line():
    server = cluster(job().worker(2, pod=MOUNTED))
    found = await explain_job(reading.client(server, *FORBIDDEN), "default", "demo")
    assert found.summary == "waiting for 2 pods"
    assert found.rank == "worker-0"
    assert set(found.unseen) == {
        "cannot see pods: needs list on pods",
        "cannot see events: needs list on events",
        "cannot see nodes: needs list on nodes",
        "cannot see resourcequotas: needs list on resourcequotas",
        "cannot see limitranges: needs list on limitranges",
        "cannot see persistentvolumeclaims: needs list on persistentvolumeclaims",
    }
    assert str(found).splitlines()[-len(found.unseen) :] == list(found.unseen)


@simulated
async def test_a_server_that_fails_in_between_is_a_line():
    server = cluster()
    client = reading.client(server, broken=("/nodes",))
    found = await explain_job(client, "default", "demo")
    assert found.unseen == ("cannot see nodes: it hurts",)


@pytest.mark.parametrize("phase", ["Running", "Completed", "Suspended"])
@simulated
async def test_a_job_that_explains_itself_costs_two_reads(phase):
    server = cluster(phase=phase, message="fine")
    add_pod(server, node="a", status={"phase": "Running", "containerStatuses": [reading.RUNNING]})
    add_pod(
        server, "demo-worker-1", node="a", status={"phase": "Running", "containerStatuses": [reading.RUNNING]}
    )
    transport = reading.Restricted(server)
    await explain_job(reading.on(transport), "default", "demo")
    assert len(transport.requests) == 2


@simulated
async def test_only_the_pods_of_this_very_job_count():
    server = cluster()
    add_pod(server)
    add_pod(server, "demo-worker-1", owner="another-uid")
    found = await gather(reading.client(server), "default", "demo")
    assert [pod.metadata.name for pod in found.pods] == ["demo-worker-0"]
    assert str(found.missing[0]) == "worker-1"


@simulated
async def test_a_pod_without_a_node_is_seen_as_it_was_admitted():
    server = cluster(job().worker(2))
    add_pod(server)
    found = await gather(reading.client(server), "default", "demo")
    (shape,) = found.shapes.values()
    assert shape.containers[0].resources.requests == {"cpu": "3"}


@simulated
async def test_nodes_are_counted_with_the_pods_of_all_namespaces():
    server = cluster()
    add(server, NODES, "a", status={"allocatable": {"cpu": "8"}})
    add_pod(server, "x-worker-7", owner="other", node="a")
    add_pod(server, "y-worker-7", owner="other", node="a", namespace="elsewhere")
    all_of_them = await gather(reading.client(server), "default", "demo")
    assert all_of_them.used["a"] == {"cpu": 6 * NANO, "pods": 2 * NANO}
    own = await gather(reading.client(server, "/api/v1/pods"), "default", "demo")
    assert own.used["a"]["cpu"] == 3 * NANO
    assert not own.sees_all_pods
    assert own.unseen == ("cannot see pods of other namespaces: needs list on pods in all namespaces",)


@simulated
async def test_a_large_cluster_is_read_in_part(monkeypatch):
    monkeypatch.setattr(sys.modules[gather.__module__], "MAX_NODES", 40)
    monkeypatch.setattr(sys.modules[gather.__module__], "PAGE", 20)
    server = cluster()
    for number in range(100):
        add(server, NODES, f"n{number}")
    found = await gather(reading.client(server), "default", "demo")
    assert len(found.nodes) == 40
    assert found.unseen == ("read only the first 40 nodes",)


@simulated
async def test_a_job_that_does_not_decode_is_explained_by_its_status():
    server = cluster(phase="Pending", reason="InvalidSpec", message="spec.worker: must be an object")
    server.patch(JOBS, "default", "demo", {"spec": {"worker": "text"}})
    found = await explain_job(reading.client(server), "default", "demo")
    assert (found.cause, found.summary) == ("InvalidSpec", "spec.worker: must be an object")


ENDED = {"name": "paddle", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}


@simulated
async def test_the_log_of_the_pod_that_failed_first():
    server = cluster(phase="Failed", reason="PodFailed", message="worker-0 failed", lastFailure=FAILURE)
    add_pod(server, node="a", attempt=1, status={"phase": "Failed", "containerStatuses": [ENDED]})
    server.container_logs.write(server.get(PODS, "default", "demo-worker-0"), b"step 1\nValueError: no\n")
    found = await explain_job(reading.client(server), "default", "demo")
    assert found.log == ("step 1", "ValueError: no")
    assert (found.rank, found.exit_code) == ("worker-0", 1)


@simulated
async def test_the_log_of_a_container_that_was_restarted_in_place():
    server = cluster(phase="Failed", reason="PodFailed", message="worker-0 failed", lastFailure=FAILURE)
    add_pod(server, node="a", attempt=1)
    server.container_logs.write(server.get(PODS, "default", "demo-worker-0"), b"the life before\n")
    again = {**reading.RUNNING, "restartCount": 1, "lastState": ENDED["state"]}
    status = {"phase": "Running", "containerStatuses": [again]}
    server.patch(PODS, "default", "demo-worker-0", {"status": status}, subresource="status")
    server.container_logs.write(server.get(PODS, "default", "demo-worker-0"), b"the life now\n")
    assert (await explain_job(reading.client(server), "default", "demo")).log == ("the life before",)


@simulated
async def test_the_log_of_another_attempt_is_not_shown():
    server = cluster(phase="Failed", reason="PodFailed", message="worker-0 failed", lastFailure=FAILURE)
    add_pod(server, node="a", attempt=2, status={"phase": "Failed", "containerStatuses": [ENDED]})
    server.container_logs.write(server.get(PODS, "default", "demo-worker-0"), b"of another attempt\n")
    assert (await explain_job(reading.client(server), "default", "demo")).log == ()


@simulated
async def test_a_record_that_may_not_be_read_leaves_the_log_lost():
    server = cluster(phase="Failed", reason="PodFailed", message="worker-0 failed", lastFailure=FAILURE)
    uid = server.get(JOBS, "default", "demo")["metadata"]["uid"]
    summary = Summary("demo", "default", uid)
    kept = Record(summary, attempts=(AttemptRecord(1, "Failed", ranks=(RankEnd("worker-0", text="boom"),)),))
    server.create(CONFIG_MAPS, manifest(kept))
    found = await explain_job(reading.client(server), "default", "demo")
    assert found.log == ("boom",)
    found = await explain_job(reading.client(server, object_key(summary).name), "default", "demo")
    assert found.log == ()
    assert any("was deleted with its log" in line for line in found.findings[0].details)
    found = await explain_job(reading.client(server, "/pods"), "default", "demo")
    assert not any("was deleted" in line for line in found.findings[0].details)


@simulated
async def test_a_log_that_is_gone_is_a_line():
    server = cluster(phase="Failed", reason="PodFailed", message="worker-0 failed", lastFailure=FAILURE)
    add_pod(server, node="a", attempt=1, status={"phase": "Failed", "containerStatuses": [ENDED]})
    found = await explain_job(reading.client(server, "/log"), "default", "demo")
    assert found.unseen == ("cannot see the log of demo-worker-0: needs get on pods/log",)


@simulated
async def test_a_gang_of_volcano_and_its_queue():
    server = cluster(phase="Pending", reason="WaitingForGang", message="waiting for PodGroup demo: Pending")
    server.register(custom_resource(VOLCANO_POD_GROUPS, status=False))
    server.register(custom_resource(VOLCANO_QUEUES, status=False))
    add(server, VOLCANO_POD_GROUPS, "demo", spec={"minMember": 2, "queue": "research"})
    add(
        server,
        VOLCANO_QUEUES,
        "research",
        spec={"capability": {"cpu": "8"}},
        status={"allocated": {"cpu": 6}},
    )
    found = await gather(reading.client(server), "default", "demo")
    assert found.gang.system is GangSystem.VOLCANO
    assert found.gang.volcano_queue.status.allocated == {"cpu": 6}


def queued_by_kueue() -> ApiServer:
    """A cluster where `demo` waits in Kueue's queue team-a."""
    queued = job().worker(1).metadata(labels={"kueue.x-k8s.io/queue-name": "team-a"})
    server = cluster(queued, phase="Pending", reason="WaitingForGang", message="waiting in Kueue's queue")
    queues = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
    server.register(custom_resource(WORKLOADS_V1BETA2, status=False))
    server.register(custom_resource(queues, status=False))
    add(server, WORKLOADS_V1BETA2, "demo", spec={"queueName": "team-a"})
    add(server, queues, "team-a", spec={"clusterQueue": "all"}, status={"pendingWorkloads": 3})
    return server


@simulated
async def test_a_workload_of_kueue_and_its_queue():
    found = await gather(reading.client(queued_by_kueue()), "default", "demo")
    assert found.gang.system is GangSystem.KUEUE
    assert msgspec.to_builtins(found.gang.local_queue.spec) == {"clusterQueue": "all"}
    assert found.gang.pending == ()


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
@simulated
async def test_the_order_of_a_queue_of_kueue(version):
    path = f"/apis/visibility.kueue.x-k8s.io/{version}/namespaces/default/localqueues/team-a/pendingworkloads"
    head = {"kind": "PendingWorkloadsSummary", "apiVersion": f"visibility.kueue.x-k8s.io/{version}"}
    waiting = [workload("other", 0, 2, owner="other"), workload("demo", 1, 3)]
    served = {path: msgspec.json.encode({**head, "metadata": {}, "items": waiting})}
    client = reading.on(reading.Restricted(queued_by_kueue(), served=served))
    found = await explain_job(client, "default", "demo")
    assert found.findings[0].details[1:] == (
        "behind 1 in LocalQueue team-a (Job other)",
        "behind 3 in ClusterQueue all",
    )


@pytest.mark.parametrize("refusal", ["forbidden", "broken"])
@simulated
async def test_an_order_that_cannot_be_seen_is_left_out(refusal):
    server, end = queued_by_kueue(), "/pendingworkloads"
    transport = (
        reading.Restricted(server, end)
        if refusal == "forbidden"
        else reading.Restricted(server, broken=(end,))
    )
    found = await explain_job(reading.on(transport), "default", "demo")
    assert any(path.endswith(end) for path, _ in transport.requests)
    assert found.findings[0].details == ("LocalQueue team-a of ClusterQueue all: 3 pending, 0 admitted",)
    assert found.unseen == ()
