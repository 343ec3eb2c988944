"""Read the objects that an explanation needs.

Only the job itself must be readable. Every list has a limit, so the cost is bounded.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectMeta, View
from paddlejob.api.pod import ContainerStatus, Pod
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.resources import PADDLE_JOBS, VOLCANO_QUEUES
from paddlejob.api.v1 import Failure, PaddleJob, PaddleJobStatus, Phase, Role
from paddlejob.client.events import EventView
from paddlejob.client.explain import objects
from paddlejob.client.explain.demand import requests_of, to_nanos
from paddlejob.client.explain.evidence import Evidence, GangEvidence, template_shape
from paddlejob.client.explain.objects import PodShape, parse_shape
from paddlejob.client.records import recorded_log
from paddlejob.core.attempts.processes import required_attempt
from paddlejob.core.gang.model import GANG_RESOURCES, GangSystem
from paddlejob.core.gang.volcano import DEFAULT_QUEUE
from paddlejob.core.pod_set import observe_pod, pod_name, replica_of, training_container_name
from paddlejob.kube import errors, responses
from paddlejob.kube.client import Client
from paddlejob.kube.resource import EVENTS, NODES, PODS, Resource
from paddlejob.text import one_line

MAX_PODS = 15_000
"""The maximum for the three roles of a job together."""
MAX_NODES = 10_000
MAX_PODS_ON_NODES = 50_000
MAX_EVENTS = 50
NAMED_CLAIMS = 5
"""Volumes and events are read for this many claims."""
LOG_LINES = 50
QUEUE_SECONDS = 3.0
"""How long to wait for the order of a queue, which Kueue serves through API aggregation."""

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
_ON_NODES = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"

Read = Awaitable[JsonObject]
"""A read that returns fields of the evidence."""
T = TypeVar("T")

PAGE = 500
MAX_OBJECTS = 1000
"""The default limit for a list."""
LOG_BYTES = 1 << 16
MAX_LOG_BYTES = 1 << 22
"""Limit for reading a log: its last lines may be very long."""
LOG_SECONDS = 10.0


async def gather(client: Client, namespace: str, name: str) -> Evidence:
    """Return everything that the client may read about a job.

    Raises KubeError when the job itself cannot be read: NotFoundError, ForbiddenError, TransportError.
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
    """Choose the reads. A running or completed job needs none."""
    status = known.job.status
    sees_pods = not reader.unseen  # only the pods were read so far
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
    if known.missing or known.unscheduled:
        yield _nodes(reader)


class _StatusOnly(View, frozen=True):
    metadata: ObjectMeta
    status: PaddleJobStatus = PaddleJobStatus()


async def _job(client: Client, namespace: str, name: str) -> PaddleJob:
    """Return the job, with only its metadata and status if the spec does not decode."""
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
        listed = reader.pages(PODS, msgspec.Raw, reader.namespace, limit=MAX_PODS, label_selector=selector)
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
                    shape = parse_shape(_SPEC.decode(raw).get("spec"))
                    shapes |= {replica.role: shape} if shape else {}
    except errors.KubeError as error:
        reader.add_gap(error, "pods", "list on pods")
    return tuple(found), shapes, specs


_POD = msgspec.json.Decoder(Pod)
_SPEC = msgspec.json.Decoder(dict)


async def _limits(reader: Reader) -> JsonObject:
    quotas = await reader.all(QUOTAS, objects.ResourceQuota)
    ranges = await reader.all(LIMIT_RANGES, objects.LimitRange)
    return {"quotas": quotas or (), "limit_ranges": ranges or ()}


async def _nodes(reader: Reader) -> JsonObject:
    """Read the nodes and the pods on them; only the namespace's pods if the others cannot be read."""
    nodes = await reader.all(NODES, objects.Node, limit=MAX_NODES)
    if not nodes:
        return {"nodes": nodes}
    try:
        used, is_complete = await _sum_requests(reader, None)
    except errors.KubeError as error:
        reader.add_gap(error, "pods of other namespaces", "list on pods in all namespaces")
    else:
        return {"nodes": nodes, "used": used, "sees_all_pods": is_complete}
    try:
        used, _ = await _sum_requests(reader, reader.namespace)
    except errors.KubeError:
        used = {}
    return {"nodes": nodes, "used": used, "sees_all_pods": False}


async def _sum_requests(reader: Reader, namespace: str | None) -> tuple[dict[str, dict[str, int]], bool]:
    """Return the requests of the pods by node, and whether all pods were read. Raises KubeError."""
    used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    read = 0
    listed = reader.pages(
        PODS, objects.ScheduledPod, namespace, limit=MAX_PODS_ON_NODES, field_selector=_ON_NODES
    )
    async for page in listed:
        read += len(page)
        for pod in page:
            room = used[pod.spec.node_name]
            for name, amount in _nanos_of(_encode(replace(pod.spec, node_name=""))).items():
                room[name] += amount
    return used, read < MAX_PODS_ON_NODES


_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=4096)
def _nanos_of(encoded: bytes) -> dict[str, int]:
    """Return the requests of a pod, cached because most pods of a cluster are copies."""
    return to_nanos(requests_of(msgspec.json.decode(encoded, type=objects.ScheduledPodSpec)))


async def _events_and_storage(reader: Reader, known: Evidence) -> JsonObject:
    shapes = (known.shapes.get(role) or template_shape(spec) for role, spec in known.roles)
    mounted = list(dict.fromkeys(claim for shape in shapes if shape for claim in shape.claims))[:NAMED_CLAIMS]
    blocking = pod_name(known.job.name, known.blocking) if known.blocking else ""
    events = [
        await reader.all(EVENTS, EventView, limit=MAX_EVENTS, field_selector=f"involvedObject.name={name}")
        for name in (known.job.name, blocking, *mounted)
        if name
    ]
    found: JsonObject = {"events": tuple(event for some in events for event in some or ())}
    return found | (await _storage(reader, mounted) if mounted else {})


async def _storage(reader: Reader, mounted: list[str]) -> JsonObject:
    """Read all claims, the volumes of the mounted ones, and the storage classes if one is pending."""
    claims = await reader.all(CLAIMS, objects.Claim)
    if claims is None:
        return {}
    used = [claim for claim in claims if claim.metadata.name in mounted]
    volumes = [await _volume(reader, claim) for claim in used]
    found: JsonObject = {
        "claims": {claim.metadata.name: claim for claim in claims},
        "volumes": {volume.metadata.name: volume for volume in volumes if volume},
    }
    if any(claim.status.phase == "Pending" for claim in used):
        classes = await reader.all(STORAGE_CLASSES, objects.StorageClass)
        if classes is not None:
            found["storage_classes"] = {each.metadata.name: each for each in classes}
    return found


async def _volume(reader: Reader, claim: objects.Claim) -> objects.PersistentVolume | None:
    name = claim.spec.volume_name
    return await reader.get(VOLUMES, name, objects.PersistentVolume) if name else None


async def _gang(reader: Reader, known: Evidence) -> JsonObject:
    """Read the PodGroup or Workload of the job."""
    for system in _systems(known):
        for kind in system.kinds:
            group = await reader.get(GANG_RESOURCES[kind], known.job.name, PodGroup)
            if group is not None:
                return {"gang": await _with_queue(reader, GangEvidence(system, group), GANG_RESOURCES[kind])}
    return {}


def _systems(known: Evidence) -> tuple[GangSystem, ...]:
    """Return the gang systems that may schedule the job. The operator's settings cannot be read."""
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
        queue = await reader.get(VOLCANO_QUEUES, name, objects.VolcanoQueue)
        return replace(gang, volcano_queue=queue)
    if gang.system is GangSystem.KUEUE and gang.group.spec.queue_name:
        queues = Resource(resource.group, resource.version, "localqueues", "LocalQueue")
        local = await reader.get(queues, gang.group.spec.queue_name, objects.LocalQueue)
        pending = await queue_order(reader, local.metadata.name) if local else ()
        return replace(gang, local_queue=local, pending=pending)
    return gang


async def queue_order(reader: Reader, queue: str) -> tuple[objects.PendingWorkload, ...]:
    """Return the Workloads in a Kueue queue, nothing if this user cannot read them."""
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
    """Read the last log lines of the pod that failed first, from the operator's record if it is gone."""
    failure = known.job.status.last_failure
    assert failure is not None
    container = _failed_container(known, failure)
    if container is None:
        lines, note = await recorded_log(reader.client, known.job, failure)
        return {"log": lines[-LOG_LINES:], "log_note": note}
    query = {"container": container.name, "tailLines": str(LOG_LINES)}
    if container.state.terminated is None:
        query["previous"] = "true"
    tail = await reader.log_tail(failure.pod, **query)
    return {"log": tuple(tail.decode("utf-8", "replace").splitlines())}


def _failed_container(known: Evidence, failure: Failure) -> ContainerStatus | None:
    """Return the container that failed, None if its pod is gone or runs the next program."""
    containers = {role: training_container_name(spec) for role, spec in known.roles}
    for pod in known.pods:
        replica = replica_of(known.job.name, pod)
        if replica is None or pod.metadata.name != failure.pod:
            continue
        member = observe_pod(replica, pod, containers.get(replica.role, ""))
        is_present = required_attempt(pod, known.job.status) == failure.attempt
        if is_present and member.training is not None:
            # If only its program was restarted, its log goes on.
            has_ended = member.training.state.terminated is not None or member.training.restart_count > 0
            return member.training if has_ended else None
    return None


class Reader:
    """Reads objects of one namespace and cluster-wide ones. Only `pages` raises KubeError."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.unseen: dict[str, None] = {}
        """Reads that failed, in order."""

    async def get(self, resource: Resource, name: str, as_type: type[T]) -> T | None:
        """Return an object, None if it does not exist or cannot be read."""
        namespace = self.namespace if resource.namespaced else None
        try:
            return await self.client.get(resource, namespace, name, type=as_type)
        except errors.NotFoundError:
            return None
        except errors.KubeError as error:
            self.add_gap(error, f"{resource.kind} {name}", f"get on {_full_name(resource)}")
            return None

    async def all(
        self, resource: Resource, as_type: type[T], *, limit: int = MAX_OBJECTS, **selectors: str
    ) -> tuple[T, ...] | None:
        """Return the objects of a kind, at most `limit`, None if they cannot be read."""
        found: list[T] = []
        try:
            async for page in self.pages(resource, as_type, self.namespace, limit=limit, **selectors):
                found += page
        except errors.NotFoundError:
            return ()
        except errors.KubeError as error:
            self.add_gap(error, resource.plural, f"list on {_full_name(resource)}")
            return None
        return tuple(found)

    async def pages(
        self, resource: Resource, as_type: type[T], namespace: str | None, *, limit: int, **selectors: str
    ) -> AsyncIterator[tuple[T, ...]]:
        """Yield a list page by page, at most `limit` objects. Raises KubeError."""
        read, token = 0, ""
        while True:
            page = await self.client.list(
                resource,
                namespace if resource.namespaced else None,
                limit=min(PAGE, limit),
                continue_token=token,
                type=as_type,
                **selectors,
            )
            yield page.items
            read, token = read + len(page.items), page.metadata.continue_token
            if not token:
                return
            if read >= limit:
                self.unseen[f"read only the first {read} {resource.plural}"] = None
                return

    async def log_tail(self, pod: str, **query: str) -> bytes:
        """Return the end of a container's log, empty if it cannot be read."""
        tail, read = b"", 0
        try:
            opened = self.client.log_stream(
                self.namespace, pod, query=query, idle_timeout_seconds=LOG_SECONDS
            )
            async with opened as stream:
                if stream.status != 200:
                    raise await responses.error_from_stream(stream)
                async for chunk in stream.chunks():
                    tail, read = (tail + chunk)[-LOG_BYTES:], read + len(chunk)
                    if read >= MAX_LOG_BYTES:
                        break
        except errors.KubeError as error:
            self.add_gap(error, f"the log of {pod}", "get on pods/log")
        return tail

    def add_gap(self, error: errors.KubeError, subject: str, right: str) -> None:
        """Record a read that failed."""
        why = f"needs {right}" if isinstance(error, errors.ForbiddenError) else one_line(str(error), 200)
        self.unseen[f"cannot see {subject}: {why}"] = None


def _full_name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
