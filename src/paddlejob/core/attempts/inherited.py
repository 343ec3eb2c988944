"""What becomes of pods and finalizers that an earlier operator left behind.

Its running jobs train on as they are: their programs have read their addresses and need nothing more.
Whatever they need later, a pod replaced or another size, is done by replacing all pods, because old and new
pods do not agree on a port. Jobs whose pods had not all started have nothing to lose: all are replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase
from paddlejob.core.actions import Plan, RemoveFinalizer
from paddlejob.core.attempts.new_attempt import NewAttempt
from paddlejob.core.pod_set import ObservedPod, PodSet
from paddlejob.core.snapshot import Snapshot

if TYPE_CHECKING:
    from paddlejob.core.observed import Observed


def is_inherited(member: ObservedPod) -> bool:
    """Return whether an earlier operator made the pod: ours are all labelled with their attempt."""
    return names.LABEL_ATTEMPT not in member.pod.metadata.labels


def has_inherited_pods(pod_set: PodSet) -> bool:
    """Return whether the pods that count are of an earlier operator, one at least."""
    return any(is_inherited(member) for member in pod_set.active)


def not_started(job: Observed) -> NewAttempt | None:
    """Find a job that an earlier operator had not brought to its start: all of its pods are replaced."""
    if not has_inherited_pods(job.pods):
        return None
    if not job.pods.missing and all(member.has_started for member in job.pods.active):
        return None
    message = "recreating all pods: an earlier operator had not started all of them"
    return NewAttempt(Phase.RESTARTING, Reason.RESTARTING, message)


def without_mixed_pods(new_attempt: NewAttempt, pod_set: PodSet) -> NewAttempt:
    """Return an attempt that leaves no inherited pod beside new ones."""
    if new_attempt.all_pods or not has_inherited_pods(pod_set):
        return new_attempt
    reason = Reason.RESTARTING if new_attempt.reason == Reason.REPLACED_POD else new_attempt.reason
    return msgspec.structs.replace(new_attempt, all_pods=True, reason=reason)


def with_world_size(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the world size that version 0.1.0 wrote, by its name of today.

    Without it nobody knows that all pods were there once, and one that is lost would be created alone.
    """
    job, formation = snapshot.job, snapshot.job.status.formation
    if formation is None:
        return snapshot
    world_size = job.status.world_size or formation
    status = msgspec.structs.replace(job.status, world_size=world_size, formation=None)
    return msgspec.structs.replace(snapshot, job=msgspec.structs.replace(job, status=status))


def finalizer_removal(snapshot: Snapshot) -> Plan | None:
    """Remove the finalizer of an earlier operator first, before a deletion is blocked by it.

    It is removed from the very version of the job that was looked at, so no status is written before.
    """
    if names.LEGACY_FINALIZER not in snapshot.job.metadata.finalizers:
        return None
    return Plan(snapshot.job.status, ((RemoveFinalizer(names.LEGACY_FINALIZER),),), requeue_after_seconds=0.0)
