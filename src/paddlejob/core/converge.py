"""Brings a live job's objects to what its spec asks for, in stages that build on each other."""

from __future__ import annotations

import msgspec

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Role
from paddlejob.core import topology
from paddlejob.core.actions import (
    Action,
    AnnotatePod,
    Create,
    Delete,
    Event,
    EventType,
    Kind,
    ReplaceConfig,
    Stages,
)
from paddlejob.core.pod_set import PodSet, Replica, pod_name
from paddlejob.core.policy.cleanup import deletions
from paddlejob.core.policy.legacy import has_inherited_pods
from paddlejob.core.policy.world_size import is_established
from paddlejob.core.render import render_config_map, render_pod, render_service
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.status import plural
from paddlejob.core.topology import JobContext


class DesiredConfig(msgspec.Struct, frozen=True):
    """The ConfigMap that connects the pods; empty while an address is missing."""

    data: dict[str, str] | None = None
    fingerprint: str | None = None


def desired_config_of(snapshot: Snapshot, context: JobContext, pod_set: PodSet) -> DesiredConfig:
    """Return the ConfigMap as it should be now.

    It lets the pods start whose addresses it has. A pod of the newest attempt that is not to be seen yet is
    not among them, unless it has a name that is known beforehand.
    """
    hosts = topology.hosts_of(context, pod_set, snapshot.config_map.data if snapshot.config_map else {})
    if hosts is None:
        return DesiredConfig()
    attempts = {member.attempt for member in pod_set.active}
    if _is_known_beforehand(context):
        attempts.add(context.attempt)
    data = topology.config_data(context, hosts, attempts)
    return DesiredConfig(data, topology.config_hash(data))


def converge(
    snapshot: Snapshot,
    context: JobContext,
    pod_set: PodSet,
    desired_config: DesiredConfig,
    *,
    may_create: bool,
) -> tuple[Stages, tuple[Event, ...]]:
    """Return what to do, in order, and what to tell when it is done.

    With names all of them are known beforehand, so the ConfigMap comes first and no pod waits for it.
    Otherwise it comes when the last pod has its address, and the pods that wait for it are woken.
    Nothing is created while a pod of the past is still there, of an attempt that is over or of an earlier job
    of this name: it holds a name, and it might meet the new ones. Pods of an earlier operator train on alone.
    """
    removed = deletions(Kind.POD, (member.pod for member in (*pod_set.outdated, *pod_set.excess)))
    if pod_set.outdated or snapshot.predecessors or not may_create or has_inherited_pods(pod_set):
        return ((removed,) if removed else ()), ()
    known_beforehand = _is_known_beforehand(context)
    mark = desired_config.fingerprint if known_beforehand else None
    pods = (_pods_of(context, pod_set, role, mark) for role, _ in context.spec.roles)
    config = _config(snapshot, desired_config.data) if desired_config.data else ()
    annotations = _annotate_pods(pod_set, desired_config.fingerprint) if desired_config.fingerprint else ()
    first = (*_services(snapshot, context, pod_set), config) if known_beforehand else ()
    last = () if known_beforehand else (config,)
    stages = (removed, *first, *pods, *last, annotations, _standby_pods(snapshot, context, pod_set))
    return tuple(stage for stage in stages if stage), tuple(_news(pod_set, removed))


def _is_known_beforehand(context: JobContext) -> bool:
    return context.uses_names or context.spec.rendezvous is not None


def _standby_pods(snapshot: Snapshot, context: JobContext, pod_set: PodSet) -> tuple[Action, ...]:
    """Let pods for the workers that an elastic job does without wait for a place in the cluster."""
    status = snapshot.job.status
    if status.workers <= 0 or not is_established(snapshot):
        return ()
    future = msgspec.structs.replace(context, attempt=context.attempt + 1)
    waiting = {standby_pod.replica for standby_pod in pod_set.standby}
    replicas = (
        Replica(Role.WORKER, index)
        for index in range(status.workers, snapshot.job.spec.replicas(Role.WORKER))
    )
    return tuple(
        Create(Kind.POD, pod_name(context.job.name, replica), render_pod(future, replica))
        for replica in replicas
        if replica not in waiting
    )


def _pods_of(context: JobContext, pod_set: PodSet, role: Role, config_hash: str | None) -> tuple[Action, ...]:
    return tuple(
        Create(
            Kind.POD,
            pod_name(context.job.name, replica),
            render_pod(context, replica, config_hash=config_hash),
        )
        for replica in pod_set.to_create
        if replica.role is role
    )


def _services(snapshot: Snapshot, context: JobContext, pod_set: PodSet) -> Stages:
    if not context.uses_names:
        return ()
    wanted: dict[str, Replica] = {pod_name(snapshot.job.name, replica): replica for replica in pod_set.wanted}
    present = {service.metadata.name for service in snapshot.services}
    create = tuple(
        Create(Kind.SERVICE, name, render_service(context, replica))
        for name, replica in wanted.items()
        if name not in present
    )
    unwanted = (service for service in snapshot.services if service.metadata.name not in wanted)
    return ((*deletions(Kind.SERVICE, unwanted), *create),)


def _config(snapshot: Snapshot, data: dict[str, str]) -> tuple[Action, ...]:
    present = snapshot.config_map
    manifest = render_config_map(snapshot.job, data)
    if present is None:
        return (Create(Kind.CONFIG_MAP, snapshot.job.name, manifest),)
    if present.data == data:
        return ()
    return (ReplaceConfig(snapshot.job.name, manifest, present.metadata.resource_version),)


def _annotate_pods(pod_set: PodSet, fingerprint: str) -> tuple[Action, ...]:
    """A pod that has started keeps the mark of the ConfigMap it started with."""
    return tuple(
        AnnotatePod(member.pod.metadata.name, member.pod.metadata.uid, fingerprint)
        for member in pod_set.active
        if not member.has_started
        and member.pod.metadata.annotations.get(names.ANNOTATION_CONFIG_HASH) != fingerprint
    )


def _news(pod_set: PodSet, removed: tuple[Action, ...]) -> list[Event]:
    events = []
    created = [
        plural(count, role)
        for role in Role
        if (count := sum(replica.role is role for replica in pod_set.to_create))
    ]
    if created:
        events.append(Event(EventType.NORMAL, Reason.CREATED_PODS, f"created {' and '.join(created)}"))
    if removed:
        gone = ", ".join(action.name for action in removed if isinstance(action, Delete))
        events.append(Event(EventType.NORMAL, Reason.DELETED_PODS, f"deleted {gone}"))
    return events
