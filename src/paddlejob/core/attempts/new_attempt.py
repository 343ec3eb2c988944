"""What a new attempt is, and what pods are to each other: whether all were there, and who depends on whom."""

from __future__ import annotations

import msgspec

from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.v1 import Failure, Mode, PaddleJobStatus, Phase, Role, WorldSize
from paddlejob.core.pod_set import ObservedPod, PodSet, PodState


class NewAttempt(msgspec.Struct, frozen=True):
    """Pods are to be created again: all of them, or some."""

    phase: Phase
    reason: str
    message: str
    all_pods: bool = True
    to_delete: tuple[ObservedPod, ...] = ()
    """Pods to delete if not all are."""
    failure: Failure | None = None
    workers: int | None = None
    """With how many workers from now on, 0 for all; None leaves that as it is."""
    blames_node: bool = False
    """Whether the node of the failed pod is suspected: the attempt waits, and its pods prefer other nodes."""


def depends_on_peers(spec: EffectiveSpec, role: Role) -> bool:
    """Return whether the loss of one pod of a role breaks the others."""
    if spec.rendezvous is not None:
        return False
    return role is not Role.WORKER or spec.mode in (Mode.COLLECTIVE, Mode.SINGLE) or spec.with_gloo > 0


def world_size_of(pod_set: PodSet, attempt: int) -> WorldSize:
    """Return how many pods of each role there are when all are there."""
    return WorldSize(attempt, *(pod_set.desired(role) for role in (Role.PS, Role.WORKER, Role.HETER)))


def is_complete(pod_set: PodSet) -> bool:
    """Return whether every pod that is needed is there and has a place in the cluster."""
    taken = [pod_set.members.get(replica) for replica in pod_set.wanted if replica not in pod_set.finished]
    return not pod_set.outdated and all(
        member is not None and not member.is_leaving and member.state is not PodState.PENDING
        for member in taken
    )


def is_established(status: PaddleJobStatus) -> bool:
    """Return whether the pods of this attempt were all there once, so that what is missing was lost."""
    return status.world_size is not None and status.world_size.attempt == status.attempt


def was_established(status: PaddleJobStatus) -> bool:
    """Return whether all pods were there once since all were last created; some may be replaced since."""
    return status.world_size is not None and status.world_size.attempt >= status.base_attempt
