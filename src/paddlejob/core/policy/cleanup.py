"""Which pods are deleted or stopped after a job has ended. docs/fault-tolerance.md has the table."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime

from paddlejob.api.pod import Pod, Service
from paddlejob.api.v1 import CleanPodPolicy, Phase
from paddlejob.core.actions import STOP_DEADLINE_SECONDS, Action, Delete, Kind, Stages, StopPod
from paddlejob.core.pod_set import ObservedPod, Replica, has_ended

_KEPT = {
    (Phase.COMPLETED, CleanPodPolicy.NEVER),
    (Phase.COMPLETED, CleanPodPolicy.ON_FAILURE),
    (Phase.FAILED, CleanPodPolicy.NEVER),
    (Phase.FAILED, CleanPodPolicy.ON_COMPLETION),
}
"""Phases and policies that keep all pods."""


def cleanup(
    policy: CleanPodPolicy,
    phase: Phase,
    members: Iterable[ObservedPod],
    services: Iterable[Service],
    excess: AbstractSet[Replica] = frozenset(),
) -> Stages:
    """Return the deletions for an ended job, pods before their services; or the stops of kept pods.

    Kept pods of a failed job are stopped to release their machines. A completed job keeps its servers running
    and stops only pods that have not started, and excess replicas, which were to be deleted.
    """
    stages: Stages
    if (phase, policy) in _KEPT:
        stops = (
            _stop(member.pod)
            for member in members
            if phase is Phase.FAILED or member.replica in excess or not _has_started(member)
            if _can_be_stopped(member.pod)
        )
        stages = (tuple(stops),)
    else:
        pods = (member.pod for member in members)
        stages = (deletions(Kind.POD, pods), deletions(Kind.SERVICE, services))
    return tuple(stage for stage in stages if stage)


def _has_started(member: ObservedPod) -> bool:
    return member.has_started or member.pod.status.phase not in ("", "Pending")


def _can_be_stopped(pod: Pod) -> bool:
    """Return whether a pod has neither ended nor been deleted or stopped."""
    seconds = pod.spec.active_deadline_seconds if pod.spec.node_name else None
    is_stopped = seconds is not None and seconds <= STOP_DEADLINE_SECONDS
    return not is_stopped and not has_ended(pod) and pod.metadata.deletion_timestamp is None


def _stop(pod: Pod) -> StopPod:
    metadata = pod.metadata
    version = "" if pod.spec.node_name else metadata.resource_version
    return StopPod(metadata.name, metadata.uid, version)


def created_after_end(pods: Iterable[Pod], ended: datetime | None) -> tuple[Action, ...]:
    """Return deletions for pods that an outdated operator created after the end of the job.

    The end is at or after the creation of all other pods (see `completed_at`), so none of them is affected.
    """
    if ended is None:
        return ()
    return deletions(Kind.POD, (pod for pod in pods if (pod.metadata.creation_timestamp or ended) > ended))


def completed_at(pods: Iterable[Pod], now: datetime) -> datetime:
    """Return the end of the job, which is never before the creation of one of its pods."""
    return max([now, *(pod.metadata.creation_timestamp or now for pod in pods)])


def stuck_terminating(
    pods: Iterable[Pod], now: datetime, force_after_seconds: float
) -> tuple[tuple[Action, ...], float | None]:
    """Return force deletions for pods stuck terminating, and when the next one is due."""
    stuck, waits = [], []
    for pod in pods:
        if pod.metadata.deletion_timestamp is None:
            continue
        late_seconds = (now - pod.metadata.deletion_timestamp).total_seconds()
        if late_seconds >= force_after_seconds:
            stuck.append(Delete(Kind.POD, pod.metadata.name, pod.metadata.uid, force=True))
        else:
            waits.append(force_after_seconds - late_seconds)
    return tuple(stuck), min(waits, default=None)


def deletions(kind: Kind, children: Iterable[Pod | Service]) -> tuple[Action, ...]:
    """Return a deletion for each object that is not being deleted already."""
    return tuple(
        Delete(kind, child.metadata.name, child.metadata.uid)
        for child in children
        if child.metadata.deletion_timestamp is None
    )
