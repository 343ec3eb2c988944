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
from paddlejob.core.pod_set import ObservedPod, PodSet
from paddlejob.core.policy.world_size import NewAttempt
from paddlejob.core.snapshot import Snapshot


def is_inherited(member: ObservedPod) -> bool:
    """Return whether an earlier operator made the pod: ours are all labelled with their attempt."""
    return names.LABEL_ATTEMPT not in member.pod.metadata.labels


def has_inherited_pods(pod_set: PodSet) -> bool:
    """Return whether the pods that count are of an earlier operator, one at least."""
    return any(is_inherited(member) for member in pod_set.active)


def attempt_after_takeover(pod_set: PodSet) -> NewAttempt | None:
    """Return that a job which an earlier operator had not brought to its start is put together anew."""
    if not has_inherited_pods(pod_set):
        return None
    if not pod_set.missing and all(member.has_started for member in pod_set.active):
        return None
    message = "an earlier operator had not started all pods; they are made anew"
    return NewAttempt(Phase.RESTARTING, Reason.RESTARTING, message)


def without_mixed_pods(new_attempt: NewAttempt | None, pod_set: PodSet) -> NewAttempt | None:
    """Return a change that leaves no inherited pod beside new ones."""
    if new_attempt is None or new_attempt.all_pods or not has_inherited_pods(pod_set):
        return new_attempt
    reason = Reason.RESTARTING if new_attempt.reason == Reason.REPLACED_POD else new_attempt.reason
    return msgspec.structs.replace(new_attempt, all_pods=True, reason=reason)


def release_finalizer(snapshot: Snapshot, decided: Plan) -> Plan:
    """Let the finalizer of an earlier operator go first, before a deletion finds nobody to remove it.

    It is removed from the very version of the job that was looked at, so no status is written before.
    """
    if names.LEGACY_FINALIZER not in snapshot.job.metadata.finalizers:
        return decided
    return Plan(snapshot.job.status, ((RemoveFinalizer(names.LEGACY_FINALIZER),),), requeue_after_seconds=0.0)
