"""The state of a gang."""

from __future__ import annotations

import msgspec

from paddlejob.core.actions import Action
from paddlejob.core.gang.model import Gang
from paddlejob.core.pod_set import PodSet, PodState


class GangState(msgspec.Struct, frozen=True):
    """The actions that a gang needs before its pods, and whether pods may be created."""

    gang: Gang | None = None
    """The gang of new pods, None if they are scheduled alone."""
    actions: tuple[Action, ...] = ()
    admitted: bool = True
    """Whether pods may be created."""
    obstacle: str = ""
    """Message for pods that may not be created yet."""
    remark: str = ""
    """The scheduler's message for pods that it cannot place."""
    look_again_in_seconds: float | None = None

    def blocked_by(self, pod_set: PodSet) -> str:
        """Return the obstacle of the gang, empty if it is complete or waits for something else."""
        if pod_set.to_create and not self.admitted:
            return self.obstacle
        placeless = any(
            member.state is PodState.PENDING and not member.pod.spec.node_name for member in pod_set.active
        )
        return self.remark if placeless else ""


ALONE = GangState()
