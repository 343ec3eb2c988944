"""Partial views of the gang schedulers' objects."""

from __future__ import annotations

from paddlejob.api.meta import Condition, JsonObject, ObjectMeta, View


class GangPolicy(View, frozen=True):
    min_count: int = 0


class GroupPolicy(View, frozen=True):
    """The policy of a PodGroup of Kubernetes' own scheduler."""

    gang: GangPolicy | None = None


class PodSetAssignment(View, frozen=True):
    """The ResourceFlavors that Kueue assigned to one set of pods, by resource."""

    name: str = ""
    flavors: dict[str, str] = {}


class Admission(View, frozen=True):
    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class PodGroupSpec(View, frozen=True):
    """A request to a gang scheduler.

    Volcano reads the first four fields, Kubernetes' scheduler priority class and policy, Kueue the last one.
    """

    min_member: int = 0
    min_resources: dict[str, int | str] = {}
    queue: str = ""
    priority_class_name: str = ""
    scheduling_policy: GroupPolicy = GroupPolicy()
    queue_name: str = ""


class PodGroupStatus(View, frozen=True):
    """The scheduler's answer; only Volcano has phases, only Kueue has admissions."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    admission: Admission | None = None

    def true_condition(self, kind: str) -> Condition | None:
        """Return the condition of this type if it is True."""
        found = (each for each in self.conditions if each.type == kind and each.status == "True")
        return next(found, None)


class PodGroup(View, frozen=True):
    """A gang: a PodGroup of Volcano or of Kubernetes' scheduler, or a Workload of Kueue."""

    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class ResourceFlavorSpec(View, frozen=True):
    node_labels: dict[str, str] = {}
    tolerations: tuple[JsonObject, ...] = ()


class ResourceFlavor(View, frozen=True):
    """A group of nodes with a quota in Kueue."""

    metadata: ObjectMeta
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class QueueSpec(View, frozen=True):
    """The limits of a queue; resources that are not listed are unlimited."""

    capability: dict[str, int | str] = {}


class QueueStatus(View, frozen=True):
    """Open, Closing, Closed, Unknown, or empty before Volcano has processed the queue."""

    state: str = ""


class Queue(View, frozen=True):
    """A queue of Volcano."""

    metadata: ObjectMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
