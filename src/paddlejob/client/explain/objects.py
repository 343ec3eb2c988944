"""Views of the objects around a job, with only the fields that explanations use.

A template that does not decode as `PodShape` is ignored.
"""

from __future__ import annotations

import msgspec

from paddlejob.api.meta import Condition, ObjectMeta, View
from paddlejob.api.pod_group import QueueStatus
from paddlejob.kube.decoding import without_nulls

_MAX_DEPTH = 20
"""The depth to which a pod spec is searched for nulls; its deepest field is at level 15."""

Amounts = dict[str, int | float | str]
"""Amounts of resources, not parsed."""


class ContainerResources(View, frozen=True):
    requests: Amounts = {}
    limits: Amounts = {}


class Container(View, frozen=True):
    name: str = ""
    restart_policy: str = ""
    resources: ContainerResources = ContainerResources()


class ClaimSource(View, frozen=True):
    claim_name: str = ""


class PodVolume(View, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None


class Toleration(View, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Requirement(View, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeTerm(View, frozen=True):
    """Rules that a node must all satisfy."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeTerms(View, frozen=True):
    """Terms of which a node must satisfy one."""

    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(View, frozen=True):
    required: NodeTerms | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(View, frozen=True):
    node_affinity: NodeAffinity | None = None


class PodShape(View, frozen=True):
    """The scheduling fields of a template, or of a pod after admission."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ContainerResources = ContainerResources()
    overhead: Amounts = {}
    volumes: tuple[PodVolume, ...] = ()
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity | None = None
    scheduler_name: str = ""
    priority_class_name: str = ""
    active_deadline_seconds: int | None = None

    @property
    def claims(self) -> tuple[str, ...]:
        """The names of the claims that the pod mounts."""
        named = (volume.persistent_volume_claim for volume in self.volumes)
        return tuple(dict.fromkeys(claim.claim_name for claim in named if claim and claim.claim_name))


class ScheduledContainer(View, frozen=True):
    resources: ContainerResources = ContainerResources()
    restart_policy: str = ""


class ScheduledPodSpec(View, frozen=True):
    node_name: str = ""
    containers: tuple[ScheduledContainer, ...] = ()
    init_containers: tuple[ScheduledContainer, ...] = ()
    resources: ContainerResources = ContainerResources()
    overhead: Amounts = {}


class ScheduledPod(View, frozen=True):
    """Any pod of the cluster that takes room on a node."""

    spec: ScheduledPodSpec = ScheduledPodSpec()


class Taint(View, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


class NodeSpec(View, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(View, frozen=True):
    allocatable: Amounts = {}


class Node(View, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ScopeExpression(View, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(View, frozen=True):
    match_expressions: tuple[ScopeExpression, ...] = ()


class QuotaSpec(View, frozen=True):
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class QuotaStatus(View, frozen=True):
    hard: Amounts = {}
    used: Amounts = {}


class ResourceQuota(View, frozen=True):
    metadata: ObjectMeta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class LimitRangeItem(View, frozen=True):
    """Defaults for containers that do not set resources."""

    type: str = ""
    default: Amounts = {}
    default_request: Amounts = {}


class LimitRangeSpec(View, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(View, frozen=True):
    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


class ClaimSpec(View, frozen=True):
    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""
    resources: ContainerResources = ContainerResources()


class ClaimStatus(View, frozen=True):
    """Pending, Bound or Lost."""

    phase: str = ""


class Claim(View, frozen=True):
    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeAffinity(View, frozen=True):
    """The nodes that can reach a volume."""

    required: NodeTerms | None = None


class VolumeSpec(View, frozen=True):
    node_affinity: VolumeAffinity | None = None


class PersistentVolume(View, frozen=True):
    metadata: ObjectMeta
    spec: VolumeSpec = VolumeSpec()


class StorageClass(View, frozen=True):
    metadata: ObjectMeta
    volume_binding_mode: str = ""


class VolcanoQueueSpec(View, frozen=True):
    capability: Amounts = {}


class VolcanoQueueStatus(QueueStatus, frozen=True):
    allocated: Amounts = {}


class VolcanoQueue(View, frozen=True):
    metadata: ObjectMeta
    spec: VolcanoQueueSpec = VolcanoQueueSpec()
    status: VolcanoQueueStatus = VolcanoQueueStatus()


class LocalQueueSpec(View, frozen=True):
    cluster_queue: str = ""


class LocalQueueStatus(View, frozen=True):
    pending_workloads: int = 0
    admitted_workloads: int = 0
    conditions: tuple[Condition, ...] = ()


class LocalQueue(View, frozen=True):
    """A Kueue queue in the namespace of the job."""

    metadata: ObjectMeta
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class PendingWorkload(View, frozen=True):
    """A Workload in a Kueue queue, and how many are ahead of it."""

    metadata: ObjectMeta
    position_in_cluster_queue: int = 0
    position_in_local_queue: int = 0

    @property
    def owner(self) -> str:
        """The job behind the Workload, such as `PaddleJob demo`."""
        owner = next(iter(self.metadata.owner_references), None)
        return f"{owner.kind} {owner.name}" if owner else f"Workload {self.metadata.name}"


class PendingWorkloads(View, frozen=True):
    """The Workloads of one LocalQueue in the order of Kueue, which serves the first thousand."""

    items: tuple[PendingWorkload, ...] = ()


def parse_shape(pod_spec: object) -> PodShape | None:
    """Decode a pod spec, None if the API server would reject it."""
    try:
        return msgspec.convert(without_nulls(pod_spec, _MAX_DEPTH), PodShape, strict=False)
    except (msgspec.ValidationError, OverflowError):
        return None
