"""Brings a live job's objects to what its spec asks for, in stages that build on each other."""

from __future__ import annotations

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Intranet, Role
from paddlejob.core import topology
from paddlejob.core.actions import Action, Create, Delete, Event, EventType, Kind, ReplaceConfig, Wake
from paddlejob.core.classify import Roster, Seat, pod_name
from paddlejob.core.policy.cleanup import deletions
from paddlejob.core.render import render_config_map, render_pod, render_service
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.status import plural
from paddlejob.core.topology import Site

Stages = tuple[tuple[Action, ...], ...]


def converge(world: Snapshot, site: Site, roster: Roster) -> tuple[Stages, tuple[Event, ...]]:
    """Return what to do, in order, and what to tell when it is done.

    With services every name is known beforehand, so the ConfigMap comes first and no pod waits for it.
    Otherwise it comes when the last pod has its address, and the pods that wait for it are woken.
    """
    surplus = deletions(Kind.POD, (member.pod for member in roster.surplus))
    hosts = topology.hosts_of(site, roster)
    data = topology.config_data(site, hosts) if hosts else None
    fingerprint = topology.config_hash(data) if data else None
    known_beforehand = site.spec.intranet is Intranet.SERVICE
    mark = fingerprint if known_beforehand else None
    pods = (_pods_of(site, roster, role, mark) for role, _ in site.spec.roles)
    config = _config(world, data) if data else ()
    wakes = _wakes(roster, fingerprint) if fingerprint else ()
    first = (_services(world, site, roster), config) if known_beforehand else ()
    last = () if known_beforehand else (config,)
    stages = (surplus, *first, *pods, *last, wakes)
    return tuple(stage for stage in stages if stage), tuple(_news(roster, surplus))


def _pods_of(site: Site, roster: Roster, role: Role, config_hash: str | None) -> tuple[Action, ...]:
    return tuple(
        Create(Kind.POD, pod_name(site.job.name, seat), render_pod(site, seat, config_hash=config_hash))
        for seat in roster.vacant
        if seat.role is role
    )


def _services(world: Snapshot, site: Site, roster: Roster) -> tuple[Action, ...]:
    wanted: dict[str, Seat] = {pod_name(world.job.name, seat): seat for seat in roster.wanted}
    present = {service.metadata.name for service in world.services}
    create = tuple(
        Create(Kind.SERVICE, name, render_service(site, seat))
        for name, seat in wanted.items()
        if name not in present
    )
    unwanted = (service for service in world.services if service.metadata.name not in wanted)
    return (*deletions(Kind.SERVICE, unwanted), *create)


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


def _news(roster: Roster, surplus: tuple[Action, ...]) -> list[Event]:
    news = []
    created = [
        plural(count, role) for role in Role if (count := sum(seat.role is role for seat in roster.vacant))
    ]
    if created:
        news.append(Event(EventType.NORMAL, Reason.CREATED_PODS, f"created {' and '.join(created)}"))
    if surplus:
        gone = ", ".join(action.name for action in surplus if isinstance(action, Delete))
        news.append(Event(EventType.NORMAL, Reason.DELETED_PODS, f"scaled down: deleted {gone}"))
    return news
