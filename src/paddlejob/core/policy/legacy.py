"""What becomes of pods and finalizers that an earlier operator left behind.

Its running jobs train on as they are: their programs have read their addresses and need nothing more.
Whatever they need later, a pod replaced or another size, is done by making all pods anew, because old and new
pods do not agree on a port. Jobs whose pods had not all started have nothing to lose: they are made anew.
"""

from __future__ import annotations

import msgspec

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase
from paddlejob.core.actions import Plan, RemoveFinalizer
from paddlejob.core.classify import Member, Roster
from paddlejob.core.policy.formation import Reform
from paddlejob.core.snapshot import Snapshot


def is_inherited(member: Member) -> bool:
    """Return whether an earlier operator made the pod: ours are all labelled with their attempt."""
    return names.LABEL_ATTEMPT not in member.pod.metadata.labels


def has_inherited_pods(roster: Roster) -> bool:
    """Return whether the pods that count are of an earlier operator, one at least."""
    return any(is_inherited(member) for member in roster.active())


def reform_inherited(roster: Roster) -> Reform | None:
    """Return that a job which an earlier operator had not brought to its start is put together anew."""
    if not has_inherited_pods(roster):
        return None
    if not roster.missing and all(member.has_started for member in roster.active()):
        return None
    message = "an earlier operator had not started all pods; they are made anew"
    return Reform(Phase.RESTARTING, Reason.RESTARTING, message)


def without_mixing(reform: Reform | None, roster: Roster) -> Reform | None:
    """Return a change that leaves no inherited pod beside new ones."""
    if reform is None or reform.whole or not has_inherited_pods(roster):
        return reform
    reason = Reason.RESTARTING if reform.reason == Reason.REPLACED_POD else reform.reason
    return msgspec.structs.replace(reform, whole=True, reason=reason)


def release_finalizer(world: Snapshot, decided: Plan) -> Plan:
    """Let the finalizer of an earlier operator go first, before a deletion finds nobody to remove it.

    It is removed from the very version of the job that was looked at, so no status is written before.
    """
    if names.LEGACY_FINALIZER not in world.job.metadata.finalizers:
        return decided
    return Plan(world.job.status, ((RemoveFinalizer(names.LEGACY_FINALIZER),),), requeue_after_seconds=0.0)
