"""State of a gang: what it needs, and what it waits for."""

from __future__ import annotations

import msgspec

from paddlejob.core.actions import Action
from paddlejob.core.gang.model import Gang
from paddlejob.core.pod_set import PodSet, PodState


class GangState(msgspec.Struct, frozen=True):
    """What a gang needs now, before its pods."""

    gang: Gang | None = None
    """What pods are marked with, None for pods that are scheduled alone."""
    actions: tuple[Action, ...] = ()
    admitted: bool = True
    """Whether pods may be created."""
    obstacle: str = ""
    """What missing pods wait for."""
    remark: str = ""
    """What the scheduler says of pods that it has no place for."""
    look_again_in_seconds: float | None = None

    def blocked_by(self, pod_set: PodSet) -> str:
        """Return what the gang waits for, empty when it is complete or waits for something else."""
        if pod_set.to_create and not self.admitted:
            return self.obstacle
        placeless = any(
            member.state is PodState.PENDING and not member.pod.spec.node_name for member in pod_set.active
        )
        return self.remark if placeless else ""


ALONE = GangState()
