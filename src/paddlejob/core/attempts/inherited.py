"""Pods and finalizers that paddle-operator, the predecessor of this operator, left behind.

Its running jobs continue to train: their programs have read their addresses. A later restart, replacement or
scaling replaces all pods, because old and new pods use different ports. If not all pods have started, all are
replaced immediately.
"""

from __future__ import annotations

import msgspec

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.core.actions import Plan, RemoveFinalizer
from paddlejob.core.attempts.new_attempt import NewAttempt
from paddlejob.core.observed import Observed
from paddlejob.core.pod_set import ObservedPod, PodSet


def is_inherited(member: ObservedPod) -> bool:
    """Return whether an earlier operator created the pod: all of ours are labelled with their attempt."""
    return names.LABEL_ATTEMPT not in member.pod.metadata.labels


def has_inherited_pods(pod_set: PodSet) -> bool:
    """Return whether any active pod was created by an earlier operator."""
    return any(is_inherited(member) for member in pod_set.active)


def replace_unstarted(job: Observed) -> NewAttempt | None:
    """Return a new attempt if an earlier operator had not started all pods."""
    if not has_inherited_pods(job.pods):
        return None
    if not job.pods.missing and all(member.has_started for member in job.pods.active):
        return None
    message = "recreating all pods: an earlier operator had not started all of them"
    return NewAttempt(Phase.RESTARTING, Reason.RESTARTING, message)


def without_mixed_pods(new_attempt: NewAttempt, pod_set: PodSet) -> NewAttempt:
    """Return an attempt that replaces all pods if any of them is inherited."""
    if new_attempt.all_pods or not has_inherited_pods(pod_set):
        return new_attempt
    reason = Reason.RESTARTING if new_attempt.reason == Reason.REPLACED_POD else new_attempt.reason
    return msgspec.structs.replace(new_attempt, all_pods=True, reason=reason)


def finalizer_removal(job: PaddleJob) -> Plan | None:
    """Return a plan that removes the finalizer of an earlier operator, which would block a deletion.

    It is removed from the observed version of the job, so no status is written before.
    """
    if names.LEGACY_FINALIZER not in job.metadata.finalizers:
        return None
    return Plan(job.status, ((RemoveFinalizer(names.LEGACY_FINALIZER),),), requeue_after_seconds=0.0)
