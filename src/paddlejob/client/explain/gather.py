"""Chooses and reads what an explanation needs.

Only the job itself has to be readable. The cost is bounded: of every list only so many objects are read.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterator
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectMeta, View
from paddlejob.api.pod import Pod
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase, Role
from paddlejob.client.events import EventView
from paddlejob.client.explain import objects
from paddlejob.client.explain.demand import in_nanos, requests_of
from paddlejob.client.explain.evidence import Evidence, GangEvidence, template_shape
from paddlejob.client.explain.objects import PodShape, shape_of
from paddlejob.client.explain.reader import Reader
from paddlejob.client.records import recorded_log
from paddlejob.core.gang.model import GANG_RESOURCES, QUEUES, GangSystem
from paddlejob.core.gang.volcano import DEFAULT_QUEUE
from paddlejob.core.pod_set import ObservedPod, observe_pod, pod_name, replica_of, training_container_name
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import EVENTS, NODES, PODS, Resource
from paddlejob.operator.resources import PADDLE_JOBS

MOST_PODS = 15_000
"""As many as the three roles of a job may have."""
MOST_NODES = 10_000
MOST_PODS_ON_NODES = 50_000
MOST_EVENTS = 50
NAMED_CLAIMS = 5
"""How many claims have their volumes and events read."""
LOG_LINES = 50
QUEUE_SECONDS = 3.0
"""How long to wait for the order of a queue, which comes from a server behind the API server."""

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
_ON_NODES = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

Read = Awaitable[JsonObject]
"""A read that gives fields of the evidence."""


async def gather(client: Client, namespace: str, name: str) -> Evidence:
    """Return all that can be seen of a job.

    Raises KubeError when the job itself cannot be: NotFoundError, ForbiddenError, TransportError.
    """
    reader = Reader(client, namespace)
    job = await _job(client, namespace, name)
    pods, shapes, specs = await _pods(reader, job)
    now = client.server_now() or datetime.now(UTC)
    known = Evidence(job=job, now=now, pods=pods, shapes=shapes, pod_specs=specs)
    found: JsonObject = {}
    for part in await asyncio.gather(*_needed(reader, known)):
        found |= part
    return replace(known, **found, unseen=tuple(reader.unseen))


def _needed(reader: Reader, known: Evidence) -> Iterator[Read]:
    """Choose what is worth reading: a job that runs or has completed explains itself."""
    status = known.job.status
    sees_pods = not reader.unseen  # so far only the pods were read
    if sees_pods and status.last_failure is not None and status.phase in (Phase.FAILED, Phase.RESTARTING):
        yield _log(reader, known)
    if status.phase in (Phase.COMPLETED, Phase.FAILED, Phase.SUSPENDED, Phase.TERMINATING):
        return
    if known.blocking is None:
        return
    yield _gang(reader, known)
    yield _events_and_storage(reader, known)
    if known.missing:
        yield _limits(reader)
    if known.missing or known.unplaced:
        yield _nodes(reader)


class _StatusOnly(View, frozen=True):
    metadata: ObjectMeta
    status: PaddleJobStatus = PaddleJobStatus()


async def _job(client: Client, namespace: str, name: str) -> PaddleJob:
    """Return the job; of one whose spec does not fit the API's types, what can be read."""
    try:
        return await client.get(PADDLE_JOBS, namespace, name, type=PaddleJob)
    except errors.UndecodableError as error:
        found = await client.get(PADDLE_JOBS, namespace, name, type=_StatusOnly)
        return PaddleJob(found.metadata, status=found.status, undecodable=str(error))


async def _pods(
    reader: Reader, job: PaddleJob
) -> tuple[tuple[Pod, ...], dict[Role, PodShape], dict[Role, JsonObject]]:
    found: list[Pod] = []
    shapes: dict[Role, PodShape] = {}
    specs: dict[Role, JsonObject] = {}
    selector = f"{names.LABEL_JOB}={job.name}"
    try:
        listed = reader.pages(PODS, msgspec.Raw, reader.namespace, most=MOST_PODS, label_selector=selector)
        async for page in listed:
            for raw in page:
                pod = _POD.decode(raw)
                if pod.metadata.controller_uid != job.metadata.uid:
                    continue
                found.append(pod)
                replica = replica_of(job.name, pod)
                if replica and replica.role not in specs:
                    specs[replica.role] = _SPEC.decode(raw).get("spec") or {}
                if replica and replica.role not in shapes and not pod.spec.node_name:
                    shape = shape_of(_SPEC.decode(raw).get("spec"))
                    shapes |= {replica.role: shape} if shape else {}
    except errors.KubeError as error:
        reader.miss(error, "pods", "list on pods")
    return tuple(found), shapes, specs


_POD = msgspec.json.Decoder(Pod)
_SPEC = msgspec.json.Decoder(dict)


async def _limits(reader: Reader) -> JsonObject:
    quotas = await reader.all(QUOTAS, objects.ResourceQuota)
    ranges = await reader.all(LIMIT_RANGES, objects.LimitRange)
    return {"quotas": quotas or (), "limit_ranges": ranges or ()}


async def _nodes(reader: Reader) -> JsonObject:
    """Read the nodes and what is used of them; where one sees only the pods of the namespace, by those."""
    nodes = await reader.all(NODES, objects.Node, most=MOST_NODES)
    if not nodes:
        return {"nodes": nodes}
    try:
        used, all_of_them = await _used(reader, None)
    except errors.KubeError as error:
        reader.miss(error, "pods of other namespaces", "list on pods in all namespaces")
    else:
        return {"nodes": nodes, "used": used, "sees_all_pods": all_of_them}
    try:
        used, _ = await _used(reader, reader.namespace)
    except errors.KubeError:
        used = {}
    return {"nodes": nodes, "used": used, "sees_all_pods": False}


async def _used(reader: Reader, namespace: str | None) -> tuple[dict[str, dict[str, int]], bool]:
    """Add up what pods ask for on each node; tell whether all were read. Raises KubeError."""
    used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    read = 0
    listed = reader.pages(
        PODS, objects.PlacedPod, namespace, most=MOST_PODS_ON_NODES, field_selector=_ON_NODES
    )
    async for page in listed:
        read += len(page)
        for pod in page:
            room = used[pod.spec.node_name]
            for name, amount in _nanos_of(_encode(replace(pod.spec, node_name=""))).items():
                room[name] += amount
    return used, read < MOST_PODS_ON_NODES


_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=4096)
def _nanos_of(encoded: bytes) -> dict[str, int]:
    """Return what a pod asks for: most pods of a cluster are like many others."""
    return in_nanos(requests_of(msgspec.json.decode(encoded, type=objects.PlacedSpec)))


async def _events_and_storage(reader: Reader, known: Evidence) -> JsonObject:
    shapes = (known.shapes.get(role) or template_shape(spec) for role, spec in known.roles)
    mounted = list(dict.fromkeys(claim for shape in shapes if shape for claim in shape.claims))[:NAMED_CLAIMS]
    blocking = pod_name(known.job.name, known.blocking) if known.blocking else ""
    events = [
        await reader.all(EVENTS, EventView, most=MOST_EVENTS, field_selector=f"involvedObject.name={name}")
        for name in (known.job.name, blocking, *mounted)
        if name
    ]
    found: JsonObject = {"events": tuple(event for some in events for event in some or ())}
    return found | (await _storage(reader, mounted) if mounted else {})


async def _storage(reader: Reader, mounted: list[str]) -> JsonObject:
    claims = await reader.all(CLAIMS, objects.Claim)
    by_name = {claim.metadata.name: claim for claim in claims or ()}
    bound = [by_name[name].spec.volume_name for name in mounted if name in by_name]
    volumes = [await reader.get(VOLUMES, name, objects.PersistentVolume) for name in bound if name]
    found: JsonObject = {"claims": None if claims is None else by_name}
    found["volumes"] = {volume.metadata.name: volume for volume in volumes if volume}
    if any(name in by_name and by_name[name].status.phase == "Pending" for name in mounted):
        classes = await reader.all(STORAGE_CLASSES, objects.StorageClass)
        by_class = {each.metadata.name: each for each in classes or ()}
        found["storage_classes"] = None if classes is None else by_class
    return found


async def _gang(reader: Reader, known: Evidence) -> JsonObject:
    """Find the object that a scheduler or a queue knows the job by."""
    for system in _systems(known):
        for kind in system.kinds:
            group = await reader.get(GANG_RESOURCES[kind], known.job.name, PodGroup)
            if group is not None:
                return {"gang": await _with_queue(reader, GangEvidence(system, group), GANG_RESOURCES[kind])}
    return {}


def _systems(known: Evidence) -> tuple[GangSystem, ...]:
    """Return the systems that may have the job; the operator's settings, which may choose, are not known."""
    marks = {each.pod.metadata.annotations.get(names.ANNOTATION_GANG, "") for each in known.pod_set.active}
    marked = tuple(system for system in GangSystem if system in marks)
    if marked or any(known.pod_set.active):
        return marked
    if known.job.metadata.labels.get(names.LABEL_KUEUE_QUEUE):
        return (GangSystem.KUEUE,)
    return (GangSystem.VOLCANO, GangSystem.NATIVE)


async def _with_queue(reader: Reader, gang: GangEvidence, resource: Resource) -> GangEvidence:
    if gang.system is GangSystem.VOLCANO:
        name = gang.group.spec.queue or DEFAULT_QUEUE
        queue = await reader.get(QUEUES, name, objects.VolcanoQueue)
        return replace(gang, volcano_queue=queue)
    if gang.system is GangSystem.KUEUE and gang.group.spec.queue_name:
        queues = Resource(resource.group, resource.version, "localqueues", "LocalQueue")
        local = await reader.get(queues, gang.group.spec.queue_name, objects.LocalQueue)
        pending = await queue_order(reader, local.metadata.name) if local else ()
        return replace(gang, local_queue=local, pending=pending)
    return gang


async def queue_order(reader: Reader, queue: str) -> tuple[objects.PendingWorkload, ...]:
    """Return what waits in a queue of Kueue, nothing where that is not served or not allowed."""
    for version in ("v1beta2", "v1beta1"):
        resource = Resource("visibility.kueue.x-k8s.io", version, "localqueues", "LocalQueue")
        try:
            async with asyncio.timeout(QUEUE_SECONDS):
                found = await reader.client.get(
                    resource,
                    reader.namespace,
                    queue,
                    subresource="pendingworkloads",
                    type=objects.PendingWorkloads,
                )
        except errors.NotFoundError:
            continue
        except (errors.KubeError, TimeoutError):
            break
        return found.items
    return ()


async def _log(reader: Reader, known: Evidence) -> JsonObject:
    """Read the end of the log of the pod that failed first, from the operator's record if the pod is gone."""
    failure = known.job.status.last_failure
    assert failure is not None
    for pod in known.pods:
        if pod.metadata.name != failure.pod:
            continue
        member = _member(known, pod)
        if member is None or member.attempt != failure.attempt or member.training is None:
            continue
        query = {"container": member.training.name, "tailLines": str(LOG_LINES)}
        if member.training.state.terminated is None:
            query["previous"] = "true"
        tail = await reader.log_tail(failure.pod, **query)
        return {"log": tuple(tail.decode("utf-8", "replace").splitlines())}
    lines, note = await recorded_log(reader.client, known.job, failure)
    return {"log": lines[-LOG_LINES:], "log_note": note}


def _member(known: Evidence, pod: Pod) -> ObservedPod | None:
    replica = replica_of(known.job.name, pod)
    training = {role: training_container_name(spec) for role, spec in known.roles}
    return observe_pod(replica, pod, training.get(replica.role, "")) if replica else None
