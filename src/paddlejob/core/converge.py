"""Brings a live job's objects to what its spec asks for, in stages that build on each other."""

from __future__ import annotations

import msgspec

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Role
from paddlejob.core import topology
from paddlejob.core.actions import (
    Action,
    Create,
    Delete,
    Event,
    EventType,
    Kind,
    ReplaceConfig,
    Stages,
    Wake,
)
from paddlejob.core.classify import Roster, Seat, pod_name
from paddlejob.core.policy.cleanup import deletions
from paddlejob.core.policy.formation import is_formed
from paddlejob.core.policy.legacy import has_inherited_pods
from paddlejob.core.render import render_config_map, render_pod, render_service
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.status import plural
from paddlejob.core.topology import Site


class Connection(msgspec.Struct, frozen=True):
    """The ConfigMap that connects the pods; empty while an address is missing."""

    data: dict[str, str] | None = None
    fingerprint: str | None = None


def connection_of(world: Snapshot, site: Site, roster: Roster) -> Connection:
    """Return the ConfigMap as it should be now.

    It lets the pods start whose addresses it has. A pod of the newest attempt that is not to be seen yet is
    not among them, unless it has a name that is known beforehand.
    """
    hosts = topology.hosts_of(site, roster, world.config_map.data if world.config_map else {})
    if hosts is None:
        return Connection()
    attempts = {member.attempt for member in roster.active()}
    if _is_known_beforehand(site):
        attempts.add(site.attempt)
    data = topology.config_data(site, hosts, attempts)
    return Connection(data, topology.config_hash(data))


def converge(
    world: Snapshot, site: Site, roster: Roster, connection: Connection, *, may_create: bool
) -> tuple[Stages, tuple[Event, ...]]:
    """Return what to do, in order, and what to tell when it is done.

    With names all of them are known beforehand, so the ConfigMap comes first and no pod waits for it.
    Otherwise it comes when the last pod has its address, and the pods that wait for it are woken.
    Nothing is created while a pod of the past is still there, of an attempt that is over or of an earlier job
    of this name: it holds a name, and it might meet the new ones. Pods of an earlier operator train on alone.
    """
    removed = deletions(Kind.POD, (member.pod for member in (*roster.stale, *roster.surplus)))
    if roster.stale or world.predecessors or not may_create or has_inherited_pods(roster):
        return ((removed,) if removed else ()), ()
    known_beforehand = _is_known_beforehand(site)
    mark = connection.fingerprint if known_beforehand else None
    pods = (_pods_of(site, roster, role, mark) for role, _ in site.spec.roles)
    config = _config(world, connection.data) if connection.data else ()
    wakes = _wakes(roster, connection.fingerprint) if connection.fingerprint else ()
    first = (*_services(world, site, roster), config) if known_beforehand else ()
    last = () if known_beforehand else (config,)
    stages = (removed, *first, *pods, *last, wakes, _probes(world, site, roster))
    return tuple(stage for stage in stages if stage), tuple(_news(roster, removed))


def _is_known_beforehand(site: Site) -> bool:
    return site.uses_names or site.spec.rendezvous is not None


def _probes(world: Snapshot, site: Site, roster: Roster) -> tuple[Action, ...]:
    """Let pods for the workers that an elastic job does without wait for a place in the cluster."""
    status = world.job.status
    if status.workers <= 0 or not is_formed(world):
        return ()
    future = msgspec.structs.replace(site, attempt=site.attempt + 1)
    waiting = {probe.seat for probe in roster.probes}
    seats = (
        Seat(Role.WORKER, index) for index in range(status.workers, world.job.spec.replicas(Role.WORKER))
    )
    return tuple(
        Create(Kind.POD, pod_name(site.job.name, seat), render_pod(future, seat))
        for seat in seats
        if seat not in waiting
    )


def _pods_of(site: Site, roster: Roster, role: Role, config_hash: str | None) -> tuple[Action, ...]:
    return tuple(
        Create(Kind.POD, pod_name(site.job.name, seat), render_pod(site, seat, config_hash=config_hash))
        for seat in roster.vacant
        if seat.role is role
    )


def _services(world: Snapshot, site: Site, roster: Roster) -> Stages:
    if not site.uses_names:
        return ()
    wanted: dict[str, Seat] = {pod_name(world.job.name, seat): seat for seat in roster.wanted}
    present = {service.metadata.name for service in world.services}
    create = tuple(
        Create(Kind.SERVICE, name, render_service(site, seat))
        for name, seat in wanted.items()
        if name not in present
    )
    unwanted = (service for service in world.services if service.metadata.name not in wanted)
    return ((*deletions(Kind.SERVICE, unwanted), *create),)


def _config(world: Snapshot, data: dict[str, str]) -> tuple[Action, ...]:
    present = world.config_map
    manifest = render_config_map(world.job, data)
    if present is None:
        return (Create(Kind.CONFIG_MAP, world.job.name, manifest),)
    if present.data == data:
        return ()
    return (ReplaceConfig(world.job.name, manifest, present.metadata.resource_version),)


def _wakes(roster: Roster, fingerprint: str) -> tuple[Action, ...]:
    """A pod that has started keeps the mark of the ConfigMap it started with."""
    return tuple(
        Wake(member.pod.metadata.name, member.pod.metadata.uid, fingerprint)
        for member in roster.active()
        if not member.has_started
        and member.pod.metadata.annotations.get(names.ANNOTATION_CONFIG_HASH) != fingerprint
    )


def _news(roster: Roster, removed: tuple[Action, ...]) -> list[Event]:
    news = []
    created = [
        plural(count, role) for role in Role if (count := sum(seat.role is role for seat in roster.vacant))
    ]
    if created:
        news.append(Event(EventType.NORMAL, Reason.CREATED_PODS, f"created {' and '.join(created)}"))
    if removed:
        gone = ", ".join(action.name for action in removed if isinstance(action, Delete))
        news.append(Event(EventType.NORMAL, Reason.DELETED_PODS, f"deleted {gone}"))
    return news
