"""Narrow views of the objects around a job: only what explanations are drawn from.

A template that does not fit `PodShape` is not reasoned about.
"""

from __future__ import annotations

import msgspec

from paddlejob.api.meta import Condition, ObjectMeta, View
from paddlejob.api.pod_group import QueueStatus

_NESTED = 20
"""How deeply a pod's spec is looked into; its deepest field is at level 15."""

Amounts = dict[str, int | float | str]
"""Amounts of resources as an object has them."""


class ContainerResources(View, frozen=True):
    """What a container asks for."""

    requests: Amounts = {}
    limits: Amounts = {}


class Container(View, frozen=True):
    """A container of a template."""

    name: str = ""
    image: str = ""
    restart_policy: str = ""
    resources: ContainerResources = ContainerResources()


class ClaimSource(View, frozen=True):
    """A volume that is a claim."""

    claim_name: str = ""


class PodVolume(View, frozen=True):
    """A volume of a pod."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None


class Toleration(View, frozen=True):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Requirement(View, frozen=True):
    """A rule about a label or a field of a node."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeTerm(View, frozen=True):
    """Rules that a node has to satisfy together."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeTerms(View, frozen=True):
    """Terms of which a node has to satisfy one."""

    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(View, frozen=True):
    """Which nodes a pod may run on."""

    required: NodeTerms | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(View, frozen=True):
    """The part of a pod's affinity that is about nodes."""

    node_affinity: NodeAffinity | None = None


class PodShape(View, frozen=True):
    """What decides where a pod fits: of a template, or of a pod as admission plugins have completed it."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ContainerResources = ContainerResources()
    overhead: Amounts = {}
    volumes: tuple[PodVolume, ...] = ()
    node_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity | None = None
    scheduler_name: str = ""
    service_account_name: str = ""
    priority_class_name: str = ""
    active_deadline_seconds: int | None = None

    @property
    def claims(self) -> tuple[str, ...]:
        """The names of the claims that it mounts."""
        named = (volume.persistent_volume_claim for volume in self.volumes)
        return tuple(dict.fromkeys(claim.claim_name for claim in named if claim and claim.claim_name))


class PlacedContainer(View, frozen=True):
    """What a container of any pod asks for."""

    resources: ContainerResources = ContainerResources()
    restart_policy: str = ""


class PlacedSpec(View, frozen=True):
    """Where a pod is, and what it asks for there."""

    node_name: str = ""
    containers: tuple[PlacedContainer, ...] = ()
    init_containers: tuple[PlacedContainer, ...] = ()
    resources: ContainerResources = ContainerResources()
    overhead: Amounts = {}


class PlacedPod(View, frozen=True):
    """Any pod of the cluster that takes room on a node."""

    spec: PlacedSpec = PlacedSpec()


class Taint(View, frozen=True):
    """What keeps pods away from a node."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


class NodeSpec(View, frozen=True):
    """Whether and for whom a node is open."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(View, frozen=True):
    """How large a node is, and how it is."""

    allocatable: Amounts = {}
    conditions: tuple[Condition, ...] = ()


class Node(View, frozen=True):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ScopeExpression(View, frozen=True):
    """A rule about the pods that a quota counts."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(View, frozen=True):
    """Rules about the pods that a quota counts."""

    match_expressions: tuple[ScopeExpression, ...] = ()


class QuotaSpec(View, frozen=True):
    """Which pods a quota counts."""

    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class QuotaStatus(View, frozen=True):
    """How much there is, and how much is taken."""

    hard: Amounts = {}
    used: Amounts = {}


class ResourceQuota(View, frozen=True):
    """A quota of the namespace."""

    metadata: ObjectMeta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class LimitRangeItem(View, frozen=True):
    """What a namespace makes of containers that do not say themselves."""

    type: str = ""
    default: Amounts = {}
    default_request: Amounts = {}


class LimitRangeSpec(View, frozen=True):
    """The rules of a LimitRange."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(View, frozen=True):
    """Defaults of the namespace."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


class ClaimSpec(View, frozen=True):
    """What storage is asked for."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""
    resources: ContainerResources = ContainerResources()


class ClaimStatus(View, frozen=True):
    """Pending, Bound or Lost."""

    phase: str = ""


class Claim(View, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeAffinity(View, frozen=True):
    """From which nodes a volume can be reached."""

    required: NodeTerms | None = None


class VolumeSpec(View, frozen=True):
    """The part of a PersistentVolume that says where it is."""

    node_affinity: VolumeAffinity | None = None


class PersistentVolume(View, frozen=True):
    """Storage that a claim is bound to."""

    metadata: ObjectMeta
    spec: VolumeSpec = VolumeSpec()


class StorageClass(View, frozen=True):
    """How storage is provided."""

    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = ""


class VolcanoQueueSpec(View, frozen=True):
    """What the jobs of a queue of Volcano may use together."""

    capability: Amounts = {}


class VolcanoQueueStatus(QueueStatus, frozen=True):
    """Its state, and what its jobs use."""

    allocated: Amounts = {}


class VolcanoQueue(View, frozen=True):
    """A queue of Volcano."""

    metadata: ObjectMeta
    spec: VolcanoQueueSpec = VolcanoQueueSpec()
    status: VolcanoQueueStatus = VolcanoQueueStatus()


class LocalQueueSpec(View, frozen=True):
    """Which ClusterQueue a LocalQueue leads to."""

    cluster_queue: str = ""


class LocalQueueStatus(View, frozen=True):
    """How many wait there."""

    pending_workloads: int = 0
    admitted_workloads: int = 0
    conditions: tuple[Condition, ...] = ()


class LocalQueue(View, frozen=True):
    """A queue of Kueue, in the job's namespace."""

    metadata: ObjectMeta
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class PendingWorkload(View, frozen=True):
    """A Workload that waits in a queue of Kueue, and how many wait before it."""

    metadata: ObjectMeta
    position_in_cluster_queue: int = 0
    position_in_local_queue: int = 0

    @property
    def owner(self) -> str:
        """What waits, such as PaddleJob demo."""
        owner = next(iter(self.metadata.owner_references), None)
        return f"{owner.kind} {owner.name}" if owner else f"Workload {self.metadata.name}"


class PendingWorkloads(View, frozen=True):
    """Those of one LocalQueue, in the order of Kueue, which serves the first thousand."""

    items: tuple[PendingWorkload, ...] = ()


def shape_of(pod_spec: object) -> PodShape | None:
    """Return what decides where a pod fits, None for a spec that the API server would not accept."""
    try:
        return msgspec.convert(_without_nulls(pod_spec, _NESTED), PodShape, strict=False)
    except (msgspec.ValidationError, OverflowError):
        return None


def _without_nulls(value: object, levels: int) -> object:
    """Leave out nulls, which are the same as absent to the API server, in so many levels."""
    if not levels:
        return None
    if isinstance(value, dict):
        return {key: _without_nulls(each, levels - 1) for key, each in value.items() if each is not None}
    return [_without_nulls(each, levels - 1) for each in value] if isinstance(value, list) else value
