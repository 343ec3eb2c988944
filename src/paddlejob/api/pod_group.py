"""Narrow views of the objects that schedulers know a gang by."""

from __future__ import annotations

from paddlejob.api.meta import Condition, ObjectMeta, View


class GangPolicy(View, frozen=True):
    """How many pods Kubernetes' own scheduler places together or not at all."""

    min_count: int = 0


class GroupPolicy(View, frozen=True):
    """The policy of a PodGroup of Kubernetes itself."""

    gang: GangPolicy | None = None


class PodGroupSpec(View, frozen=True):
    """What is asked of a scheduler; Volcano reads the first four fields, Kubernetes itself the last two."""

    min_member: int = 0
    min_resources: dict[str, int | str] = {}
    queue: str = ""
    priority_class_name: str = ""
    scheduling_policy: GroupPolicy = GroupPolicy()


class PodGroupStatus(View, frozen=True):
    """What the scheduler says; only Volcano has phases."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class PodGroup(View, frozen=True):
    """A gang, of Volcano or of Kubernetes itself."""

    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
