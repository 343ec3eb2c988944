"""Pods that have found together: when they have, and what they are to each other."""

from __future__ import annotations

import msgspec

from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.v1 import Failure, Formation, Mode, Phase, Role
from paddlejob.core.classify import Member, PodState, Roster
from paddlejob.core.snapshot import Snapshot


class Reform(msgspec.Struct, frozen=True):
    """The job is to be put together anew: all of it, or one pod."""

    phase: Phase
    reason: str
    message: str
    whole: bool = True
    victims: tuple[Member, ...] = ()
    """Which pods go when not all do."""
    failure: Failure | None = None
    workers: int | None = None
    """With how many workers from now on, 0 for all; None leaves that as it is."""


def depends_on_peers(spec: EffectiveSpec, role: Role) -> bool:
    """Return whether the loss of one pod of a role breaks the others."""
    if spec.rendezvous is not None:
        return False
    return role is not Role.WORKER or spec.mode in (Mode.COLLECTIVE, Mode.SINGLE) or spec.with_gloo > 0


def formation_of(roster: Roster, attempt: int) -> Formation:
    """Return the formation that a complete roster is."""
    return Formation(attempt, *(roster.desired(role) for role in (Role.PS, Role.WORKER, Role.HETER)))


def is_complete(roster: Roster) -> bool:
    """Return whether every pod that is needed is there and has a place in the cluster."""
    taken = [roster.members.get(seat) for seat in roster.wanted if seat not in roster.finished]
    return not roster.stale and all(
        member is not None and not member.is_leaving and member.state is not PodState.PENDING
        for member in taken
    )


def is_formed(world: Snapshot) -> bool:
    """Return whether the pods of this attempt were all there once, so that what is missing was lost."""
    status = world.job.status
    return status.formation is not None and status.formation.attempt == status.attempt


def was_formed(world: Snapshot) -> bool:
    """Return whether all pods were there once since all were last created; some may be replaced since."""
    status = world.job.status
    return status.formation is not None and status.formation.attempt >= status.base_attempt
