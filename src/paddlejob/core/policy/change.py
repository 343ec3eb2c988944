"""Jobs whose pods are no longer what they were: one is gone, another size is wanted, addresses changed."""

from __future__ import annotations

from collections.abc import Iterator

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Failure, Phase, Role
from paddlejob.core.classify import Roster, Seat, pod_name
from paddlejob.core.policy.formation import Reform, depends_on_peers, formation_of, is_formed, was_formed
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.topology import Site, attempt_key, published_host


def reform_after_change(
    world: Snapshot, site: Site, roster: Roster, fingerprint: str | None
) -> Reform | None:
    """Return the new attempt that a change of the pods calls for, None when they are as they were."""
    scaling = _after_scaling(world, site, roster)
    if scaling is not None and scaling.whole:
        return scaling
    return _after_loss(world, site, roster) or scaling or _after_move(world, site, roster, fingerprint)


def _after_loss(world: Snapshot, site: Site, roster: Roster) -> Reform | None:
    """Find pods that were there and are gone, or go: somebody deleted them, so nobody is to blame.

    A pod that others depend on is lost whatever becomes of the rest: they hold its address, and their work.
    A worker that is replaced alone is not missed again before all were there.
    """
    gone = [seat for seat in roster.wanted if seat not in roster.members and seat not in roster.finished]
    leaving = [
        seat for seat, member in roster.members.items() if member.is_leaving and seat not in roster.finished
    ]
    breaking = [
        seat
        for seat in (*gone, *leaving)
        if depends_on_peers(site.spec, seat.role) and _was_there(world, roster, seat)
    ]
    lost = breaking or (gone if is_formed(world) and not _is_resized(world, roster) else [])
    if not lost:
        return None
    message = f"{lost[0]} is gone: its pod was deleted"
    reason = Reason.RESTARTING if breaking else Reason.REPLACED_POD
    failure = _uncounted(world, lost[0], Reason.POD_LOST, message)
    return Reform(Phase.RESTARTING, reason, message, whole=bool(breaking), failure=failure)


def _was_there(world: Snapshot, roster: Roster, seat: Seat) -> bool:
    """Return whether others have worked with the pod of a seat.

    Pods that are called by name start before all are there. A worker comes after all servers, so where one
    has started a server that is missing was there.
    """
    formed = world.job.status.formation
    if formed is not None and was_formed(world):
        return seat.index < int(getattr(formed, seat.role))
    return seat.role is Role.PS and any(worker.has_started for worker in roster.active(Role.WORKER))


def _is_resized(world: Snapshot, roster: Roster) -> bool:
    formed = world.job.status.formation
    return formed is not None and formed != formation_of(roster, formed.attempt)


def _after_scaling(world: Snapshot, site: Site, roster: Roster) -> Reform | None:
    """Find that the user wants another number of pods than there were."""
    formed = world.job.status.formation
    if formed is None or not was_formed(world) or not _is_resized(world, roster):
        return None
    wanted = formation_of(roster, formed.attempt)
    changes = [
        f"{role} from {getattr(formed, role)} to {getattr(wanted, role)}"
        for role in Role
        if getattr(formed, role) != getattr(wanted, role)
    ]
    servers_change = (formed.ps, formed.heter) != (wanted.ps, wanted.heter)
    whole = servers_change or depends_on_peers(site.spec, Role.WORKER)
    message = f"scaling {' and '.join(changes)}"
    return Reform(Phase.SCALING, Reason.SCALED, message, whole=whole, victims=roster.surplus)


def _after_move(world: Snapshot, site: Site, roster: Roster, fingerprint: str | None) -> Reform | None:
    """Find pods that train with addresses which are no longer those of their peers."""
    if not was_formed(world):
        return None
    stale = next(_holders_of_stale_addresses(world, site, roster, fingerprint), None)
    if stale is None:
        return None
    message = f"{stale} holds addresses that have changed since it started"
    failure = _uncounted(world, stale, Reason.ADDRESS_CHANGED, message)
    return Reform(Phase.RESTARTING, Reason.RESTARTING, message, failure=failure)


def _holders_of_stale_addresses(
    world: Snapshot, site: Site, roster: Roster, fingerprint: str | None
) -> Iterator[Seat]:
    """Yield started pods whose environment has an address that a pod they depend on no longer has.

    Where workers depend on each other any change of the ConfigMap since their start is one. Elsewhere workers
    come and go, and only the addresses of the servers matter; no ConfigMap with others has been written yet.
    """
    data = world.config_map.data if world.config_map else {}
    everything_matters = depends_on_peers(site.spec, Role.WORKER)
    servers_moved = not everything_matters and _servers_moved(site, roster, data)
    for member in roster.active():
        mark = member.pod.metadata.annotations.get(names.ANNOTATION_CONFIG_HASH)
        if not member.has_started or member.seat in roster.finished:
            continue
        holds_others = fingerprint is not None and mark not in (None, fingerprint)
        holds_these = attempt_key(world.job, member.attempt) in data
        if (everything_matters and holds_others) or (servers_moved and holds_these):
            yield member.seat


def _servers_moved(site: Site, roster: Roster, data: dict[str, str]) -> bool:
    if site.uses_names or site.spec.rendezvous is not None:
        return False
    return any(
        bool(address := member.pod.status.pod_ip) and published_host(data, member.seat) not in ("", address)
        for member in roster.active()
        if member.seat.role is not Role.WORKER
    )


def _uncounted(world: Snapshot, seat: Seat, reason: str, message: str) -> Failure:
    return Failure(
        attempt=world.job.status.attempt,
        pod=pod_name(world.job.name, seat),
        reason=reason,
        message=message,
        time=world.now,
        counted=False,
    )
