"""A new attempt, whether all pods of an attempt were up, and which pods depend on each other."""

from __future__ import annotations

import msgspec

from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.v1 import Failure, Mode, PaddleJobStatus, Phase, Role, WorldSize
from paddlejob.core.pod_set import ObservedPod, PodSet, PodState


class NewAttempt(msgspec.Struct, frozen=True):
    """The decision to create all pods or some of them again."""

    phase: Phase
    reason: str
    message: str
    all_pods: bool = True
    to_delete: tuple[ObservedPod, ...] = ()
    """Pods to delete if `all_pods` is False."""
    failure: Failure | None = None
    workers: int | None = None
    """New number of workers, 0 for all; None keeps the current one."""
    in_place: bool = False
    """Whether the programs of the other pods restart in place."""
    blames_node: bool = False
    """Whether the node is suspected: the attempt is delayed, and its pods prefer other nodes."""


def depends_on_peers(spec: EffectiveSpec, role: Role) -> bool:
    """Return whether the loss of one pod of a role breaks the others."""
    if spec.rendezvous is not None:
        return False
    return role is not Role.WORKER or spec.mode in (Mode.COLLECTIVE, Mode.SINGLE) or spec.with_gloo > 0


def world_size_of(pod_set: PodSet, attempt: int) -> WorldSize:
    """Return the number of pods of each role in a complete attempt."""
    return WorldSize(attempt, *(pod_set.desired(role) for role in (Role.PS, Role.WORKER, Role.HETER)))


def is_complete(pod_set: PodSet) -> bool:
    """Return whether every needed pod exists and has a node."""
    taken = [pod_set.members.get(replica) for replica in pod_set.wanted if replica not in pod_set.finished]
    return not pod_set.outdated and all(
        member is not None and not member.is_leaving and member.state is not PodState.PENDING
        for member in taken
    )


def is_established(status: PaddleJobStatus) -> bool:
    """Return whether the pods of this attempt were once complete, so that a missing pod was lost."""
    return status.world_size is not None and status.world_size.attempt == status.attempt


def was_established(status: PaddleJobStatus) -> bool:
    """Return whether the pods were complete at some time since all were last created."""
    return status.world_size is not None and status.world_size.attempt >= status.base_attempt
