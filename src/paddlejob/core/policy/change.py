"""Formations that are no longer what they were: a pod deleted, another size wanted, addresses changed."""

from __future__ import annotations

from paddlejob.api import names
from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Failure, Phase, Role
from paddlejob.core.classify import Roster, pod_name
from paddlejob.core.policy.formation import Reform, depends_on_peers, formation_of, is_formed
from paddlejob.core.snapshot import Snapshot


def reform_after_change(
    world: Snapshot, spec: EffectiveSpec, roster: Roster, fingerprint: str | None
) -> Reform | None:
    """Return how to put a formed job together anew, None when it is as it was."""
    if not is_formed(world):
        return None
    return (
        _after_loss(world, spec, roster)
        or _after_scaling(world, spec, roster)
        or _after_move(spec, roster, fingerprint)
    )


def _after_loss(world: Snapshot, spec: EffectiveSpec, roster: Roster) -> Reform | None:
    """Find pods that were there and are gone, or go: somebody deleted them, so nobody is to blame."""
    if _is_resized(world, roster):
        return None
    gone = [seat for seat in roster.wanted if seat not in roster.members]
    leaving = [seat for seat, member in roster.members.items() if member.is_leaving]
    breaking = [seat for seat in (*gone, *leaving) if depends_on_peers(spec, seat.role)]
    lost = breaking or gone
    if not lost:
        return None
    message = f"{lost[0]} is gone: its pod was deleted"
    failure = Failure(
        attempt=world.job.status.attempt,
        pod=pod_name(world.job.name, lost[0]),
        reason=Reason.POD_LOST,
        message=message,
        time=world.now,
        counted=False,
    )
    reason = Reason.RESTARTING if breaking else Reason.REPLACED_POD
    return Reform(Phase.RESTARTING, reason, message, whole=bool(breaking), failure=failure)


def _is_resized(world: Snapshot, roster: Roster) -> bool:
    formed = world.job.status.formation
    return formed is not None and formed != formation_of(roster, formed.attempt)


def _after_scaling(world: Snapshot, spec: EffectiveSpec, roster: Roster) -> Reform | None:
    """Find that the user wants another number of pods than have found together."""
    formed = world.job.status.formation
    if formed is None or not _is_resized(world, roster):
        return None
    wanted = formation_of(roster, formed.attempt)
    changes = [
        f"{role} from {getattr(formed, role)} to {getattr(wanted, role)}"
        for role in Role
        if getattr(formed, role) != getattr(wanted, role)
    ]
    servers_change = (formed.ps, formed.heter) != (wanted.ps, wanted.heter)
    whole = servers_change or depends_on_peers(spec, Role.WORKER)
    message = f"scaling {' and '.join(changes)}"
    return Reform(Phase.SCALING, Reason.SCALED, message, whole=whole, victims=roster.surplus)


def _after_move(spec: EffectiveSpec, roster: Roster, fingerprint: str | None) -> Reform | None:
    """Find pods that train with addresses which are no longer those of their peers."""
    if fingerprint is None or not depends_on_peers(spec, Role.WORKER):
        return None
    for member in roster.active():
        mark = member.pod.metadata.annotations.get(names.ANNOTATION_CONFIG_HASH)
        if member.has_started and mark not in (None, fingerprint):
            message = f"{member.seat} holds addresses that have changed since it started"
            return Reform(Phase.RESTARTING, Reason.RESTARTING, message)
    return None
