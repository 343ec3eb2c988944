"""Narrow views of the objects that schedulers know a gang by."""

from __future__ import annotations

from paddlejob.api.meta import Condition, JsonObject, ObjectMeta, View


class GangPolicy(View, frozen=True):
    """How many pods Kubernetes' own scheduler places together or not at all."""

    min_count: int = 0


class GroupPolicy(View, frozen=True):
    """The policy of a PodGroup of Kubernetes itself."""

    gang: GangPolicy | None = None


class PodSetAssignment(View, frozen=True):
    """Flavors of nodes that Kueue assigned to one set of pods, by resource."""

    name: str = ""
    flavors: dict[str, str] = {}


class Admission(View, frozen=True):
    """What Kueue has given to a workload."""

    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class PodGroupSpec(View, frozen=True):
    """What is asked of a scheduler.

    Volcano reads the first four fields, Kubernetes itself priority class and policy, Kueue the last.
    """

    min_member: int = 0
    min_resources: dict[str, int | str] = {}
    queue: str = ""
    priority_class_name: str = ""
    scheduling_policy: GroupPolicy = GroupPolicy()
    queue_name: str = ""


class PodGroupStatus(View, frozen=True):
    """What the scheduler says; only Volcano has phases, only Kueue has admissions."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    admission: Admission | None = None

    def says(self, kind: str) -> Condition | None:
        """Return a condition that holds, None when it does not."""
        found = (each for each in self.conditions if each.type == kind and each.status == "True")
        return next(found, None)


class PodGroup(View, frozen=True):
    """A gang: a PodGroup of Volcano or of Kubernetes itself, or a Workload of Kueue."""

    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class ResourceFlavorSpec(View, frozen=True):
    """How to get to the nodes of a flavor."""

    node_labels: dict[str, str] = {}
    tolerations: tuple[JsonObject, ...] = ()


class ResourceFlavor(View, frozen=True):
    """A kind of nodes that Kueue keeps a quota for."""

    metadata: ObjectMeta
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class QueueSpec(View, frozen=True):
    """What the jobs of a queue may use together; resources that are not listed are not limited."""

    capability: dict[str, int | str] = {}


class QueueStatus(View, frozen=True):
    """Open, Closing, Closed or Unknown; a queue that nobody has looked at yet has no state."""

    state: str = ""


class Queue(View, frozen=True):
    """A queue of Volcano."""

    metadata: ObjectMeta
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
