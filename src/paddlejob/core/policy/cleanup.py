"""What is deleted when a job has ended. docs/fault-tolerance.md shows it as one table."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime

from paddlejob.api.names import Reason
from paddlejob.api.pod import Pod, Service
from paddlejob.api.v1 import CleanPodPolicy, Phase
from paddlejob.core.actions import Action, Delete, Kind
from paddlejob.core.pod_set import ObservedPod, Replica, has_ended


class Ending(enum.Enum):
    """The ways to end that make a difference to pods."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    DEADLINE_EXCEEDED = "Failed by a deadline"


class PodProgress(enum.Enum):
    """How far a pod has come."""

    NOT_STARTED = "not started"
    RUNNING = "running"
    """Also a pod whose training container has ended beside a sidecar: it still holds its place on a node."""
    ENDED = "ended"


_ENDED, _STARTED = frozenset({PodProgress.ENDED}), frozenset({PodProgress.RUNNING, PodProgress.ENDED})
_KEPT = {
    (Ending.COMPLETED, CleanPodPolicy.NEVER): _STARTED,
    (Ending.COMPLETED, CleanPodPolicy.ON_FAILURE): _STARTED,
    (Ending.FAILED, CleanPodPolicy.NEVER): _STARTED,
    (Ending.FAILED, CleanPodPolicy.ON_COMPLETION): _ENDED,
    (Ending.DEADLINE_EXCEEDED, CleanPodPolicy.NEVER): _ENDED,
    (Ending.DEADLINE_EXCEEDED, CleanPodPolicy.ON_COMPLETION): _ENDED,
}
"""Which pods are kept. A pod that has not started has no logs to keep and nothing left to do: it never is."""


def ending_of(phase: Phase, reason: str) -> Ending:
    """Return how a job ended, from its status."""
    if phase is Phase.COMPLETED:
        return Ending.COMPLETED
    by_deadline = reason in (Reason.DEADLINE_EXCEEDED, Reason.STARTUP_DEADLINE_EXCEEDED)
    return Ending.DEADLINE_EXCEEDED if by_deadline else Ending.FAILED


def progress_of(member: ObservedPod) -> PodProgress:
    """Return how far a pod has come."""
    if has_ended(member.pod):
        return PodProgress.ENDED
    is_pending = member.pod.status.phase in ("", "Pending")
    return PodProgress.NOT_STARTED if is_pending and not member.has_started else PodProgress.RUNNING


def keeps(policy: CleanPodPolicy, ending: Ending, progress: PodProgress) -> bool:
    """Return whether a pod is kept after the end of its job."""
    return progress in _KEPT.get((ending, policy), ())


def cleanup(
    policy: CleanPodPolicy,
    ending: Ending,
    members: Iterable[ObservedPod],
    services: Iterable[Service],
    excess: AbstractSet[Replica] = frozenset(),
) -> tuple[tuple[Action, ...], ...]:
    """Return the deletions for an ended job: pods, then their services unless some pods are kept.

    A replica in excess was to be deleted when the job was scaled down, so it is kept only for its logs.
    """

    def stays(member: ObservedPod) -> bool:
        progress = progress_of(member)
        is_excess = member.replica in excess and progress is not PodProgress.ENDED
        return keeps(policy, ending, progress) and not is_excess

    pods = (member.pod for member in members if not stays(member))
    unused = () if (ending, policy) in _KEPT else services
    return tuple(stage for stage in (deletions(Kind.POD, pods), deletions(Kind.SERVICE, unused)) if stage)


def created_after_end(pods: Iterable[Pod], ended: datetime | None) -> tuple[Action, ...]:
    """Return deletions for pods created after the end, by an operator that did not know of it yet.

    `completed_at` sees to it that no pod of the job itself is among them, whatever the clocks say.
    """
    if ended is None:
        return ()
    return deletions(Kind.POD, (pod for pod in pods if (pod.metadata.creation_timestamp or ended) > ended))


def completed_at(pods: Iterable[Pod], now: datetime) -> datetime:
    """Return the time of the end, which is not before the creation of any pod that was there."""
    return max([now, *(pod.metadata.creation_timestamp or now for pod in pods)])


def stuck_terminating(
    pods: Iterable[Pod], now: datetime, force_after_seconds: float
) -> tuple[tuple[Action, ...], float | None]:
    """Return deletions by force for pods that should be gone for long, and when the next one is due."""
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
    """Return a deletion for each object that is not on its way out already."""
    return tuple(
        Delete(kind, child.metadata.name, child.metadata.uid)
        for child in children
        if child.metadata.deletion_timestamp is None
    )
