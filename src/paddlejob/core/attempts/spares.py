"""Spares: worker pods without a rank, which wait until they take the rank of a lost worker.

The pods of a collective job with N workers and S spares are worker-0 to worker-(N+S-1). A rank belongs to the
pod of the same number until `status.movedRanks` gives it to another one. The move is part of the status write
that begins the attempt, so every operator assigns the same ranks, and the name of a pod never changes. The
number that lost its rank gets a new pod, which is the next spare.

The environment of a spare refers to two keys of the job's ConfigMap, its rank and its attempt. The ConfigMap
gets them only after the move, together with the addresses of that attempt, when no earlier program runs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping

from paddlejob.api import names
from paddlejob.api.names import SPARE_GUARD
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.pod_set import (
    ObservedPod,
    PodSet,
    PodState,
    Replica,
    attempt_of,
    has_run,
    is_spare,
    replica_of,
)


def job_mark(job: PaddleJob) -> str:
    """Return a short hash of the job's UID."""
    return f"{zlib.crc32(job.metadata.uid.encode()):08X}"


def spare_keys(job: PaddleJob, replica: Replica, attempt: int) -> tuple[str, str]:
    """Return the ConfigMap keys of the attempt and the rank of a spare, without which it cannot start.

    `attempt` is the one that the pod was created for: a later pod of the same name has other keys.
    """
    prefix = f"{SPARE_GUARD}{replica.index}_{attempt}_{job_mark(job)}"
    return prefix, f"{prefix}_RANK"


def waits_for_rank(job: PaddleJob, pod: Pod, data: Mapping[str, str]) -> bool:
    """Return whether a pod is a spare that cannot have started: the ConfigMap's data lacks its keys.

    A spare that was told of the ConfigMap may have started with keys that are gone now.
    """
    replica = replica_of(job.name, pod) if is_spare(pod) else None
    was_told = names.ANNOTATION_CONFIG_HASH in pod.metadata.annotations
    if replica is None or was_told or any(map(has_run, pod.status.container_statuses)):
        return False
    return spare_keys(job, replica, attempt_of(pod))[0] not in data


def is_ready(spare: ObservedPod) -> bool:
    """Return whether a spare has an address and only waits for its rank."""
    return not spare.is_leaving and spare.state is PodState.STARTING and bool(spare.pod.status.pod_ip)


def move_ranks(
    pods: PodSet, leaving: Collection[ObservedPod], may_take: Callable[[ObservedPod], bool]
) -> dict[int, int]:
    """Return the workers that hold moved ranks, by rank, when ready spares have replaced lost workers."""
    staying = {member.replica for member in pods.active if member not in leaving}
    lost = [replica for replica in pods.wanted if replica not in staying]
    ready = [spare for spare in pods.spares if is_ready(spare) and may_take(spare)]
    taken = {pods.rank(old): spare.replica.index for old, spare in zip(lost, ready, strict=False)}
    return {**pods.moves, **taken}


def moved_from(pods: PodSet, moves: Mapping[int, int]) -> list[Replica]:
    """Return the workers that lose their rank by new moves."""
    ranks = (rank for rank, index in moves.items() if pods.worker(rank).index != index)
    return [pods.worker(rank) for rank in ranks]


def ready_text(pods: PodSet) -> str:
    """Return the spares as the status shows them, empty if the job has none."""
    return f"{sum(map(is_ready, pods.spares))}/{len(pods.idle)}" if pods.idle else ""
