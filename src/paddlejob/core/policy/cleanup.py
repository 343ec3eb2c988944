"""What is deleted when a job has ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from paddlejob.api.pod import Pod, Service
from paddlejob.api.v1 import CleanPodPolicy, Phase
from paddlejob.core.actions import Action, Delete, Kind

_CLEANS = {
    CleanPodPolicy.ALWAYS: (Phase.COMPLETED, Phase.FAILED),
    CleanPodPolicy.NEVER: (),
    CleanPodPolicy.ON_FAILURE: (Phase.FAILED,),
    CleanPodPolicy.ON_COMPLETION: (Phase.COMPLETED,),
}


def cleans(policy: CleanPodPolicy, ending: Phase) -> bool:
    """Return whether pods go when a job ends this way."""
    return ending in _CLEANS[policy]


def cleanup(
    policy: CleanPodPolicy, ending: Phase, pods: Iterable[Pod], services: Iterable[Service]
) -> tuple[tuple[Action, ...], ...]:
    """Return the deletions for an ended job: its pods in any state, then their services."""
    if not cleans(policy, ending):
        return ()
    return tuple(stage for stage in (deletions(Kind.POD, pods), deletions(Kind.SERVICE, services)) if stage)


def born_too_late(pods: Iterable[Pod], ended: datetime | None) -> tuple[Action, ...]:
    """Return deletions for pods that came after the end: an operator that had not heard of it made them."""
    if ended is None:
        return ()
    return deletions(Kind.POD, (pod for pod in pods if (pod.metadata.creation_timestamp or ended) > ended))


def overdue(
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
