"""The input of an explanation: the job and the objects around it that the user may read."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

import msgspec
from msgspec.structs import replace

from paddlejob.api.defaulting import effective_of
from paddlejob.api.meta import LONG_AGO, JsonObject
from paddlejob.api.pod import Pod
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.v1 import MAX_REPLICAS, PaddleJob, Role, RoleSpec
from paddlejob.client.events import EventView
from paddlejob.client.explain.objects import (
    Claim,
    LimitRange,
    LocalQueue,
    Node,
    PendingWorkload,
    PersistentVolume,
    PodShape,
    ResourceQuota,
    StorageClass,
    VolcanoQueue,
    parse_shape,
)
from paddlejob.core.attempts.elastic import with_workers
from paddlejob.core.explain import first_obstacle
from paddlejob.core.gang.model import GangSystem
from paddlejob.core.pod_set import (
    FINAL_PHASES,
    Attempts,
    ObservedPod,
    PodSet,
    PodState,
    Replica,
    pod_set_of,
)

_UP = (PodState.RUNNING, PodState.SUCCEEDED)


class GangEvidence(msgspec.Struct, frozen=True):
    """The PodGroup or Workload of the job, and its queue."""

    system: GangSystem
    group: PodGroup
    volcano_queue: VolcanoQueue | None = None
    local_queue: LocalQueue | None = None
    pending: tuple[PendingWorkload, ...] = ()
    """The Workloads in the Kueue queue, in order; empty if Kueue does not serve them to this user."""


class Evidence(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """Everything that was read. Fields that could not be read are empty, and named in `unseen`."""

    job: PaddleJob
    now: datetime
    """The time of the API server."""
    pods: tuple[Pod, ...] = ()
    """The pods that this job owns."""
    shapes: dict[Role, PodShape] = {}
    """For each role with an unscheduled pod, that pod after admission."""
    pod_specs: dict[Role, JsonObject] = {}
    """For each role, the spec of its first pod."""
    events: tuple[EventView, ...] = ()
    """Events of the job, its gang, its claims, and the pod that the others wait for."""
    quotas: tuple[ResourceQuota, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    nodes: tuple[Node, ...] | None = None
    """None if they cannot be read."""
    used: dict[str, dict[str, int]] = {}
    """By node name: the sum of the pods' requests in nanos, and their number as `pods`."""
    sees_all_pods: bool = True
    """Whether `used` counts all pods, in all namespaces."""
    claims: dict[str, Claim] | None = None
    """All claims of the namespace by name, None if they cannot be read."""
    volumes: dict[str, PersistentVolume] = {}
    """The volumes that the job's claims are bound to, by name."""
    storage_classes: dict[str, StorageClass] | None = None
    gang: GangEvidence | None = None
    log: tuple[str, ...] = ()
    """The last lines of the pod that failed first."""
    log_note: str = ""
    """The source of these lines if it is not the pod's log, or why there are none."""
    unseen: tuple[str, ...] = ()
    run: str = ""
    """The name of the local run; empty for a job on a cluster."""

    def command(self, verb: str) -> str:
        """Return the command line that runs a verb on the job."""
        return f"paddlejob {verb} {self.run}" if self.run else f"kubectl pdj {verb} {self.job.name}"

    @cached_property
    def pod_set(self) -> PodSet:
        attempts, spares = Attempts.of(self.job.status), min(self.job.spec.spares, MAX_REPLICAS)
        return pod_set_of(self.job.name, self.roles, self.pods, attempts, spares=spares)

    @cached_property
    def roles(self) -> tuple[tuple[Role, RoleSpec], ...]:
        """The roles with the current number of replicas, at most MAX_REPLICAS."""
        roles = with_workers(effective_of(self.job), self.job.status.workers).roles
        return tuple((role, replace(spec, replicas=min(spec.replicas, MAX_REPLICAS))) for role, spec in roles)

    @cached_property
    def missing(self) -> tuple[Replica, ...]:
        """Replicas without a pod."""
        return self.pod_set.to_create

    @cached_property
    def unscheduled(self) -> tuple[ObservedPod, ...]:
        """Pods without a node."""
        return tuple(
            each
            for each in self.pod_set.active
            if not each.pod.spec.node_name and each.pod.status.phase not in FINAL_PHASES
        )

    @cached_property
    def blocking(self) -> Replica | None:
        """The replica that the others wait for: one with an obstacle, or else the first missing one."""
        pods = self.pod_set
        unsettled = [
            each for each in pods.active if each.state not in _UP and each.replica not in pods.finished
        ]
        obstacle = first_obstacle(unsettled)
        if obstacle is not None:
            return obstacle[0].replica
        return next(iter((*pods.missing, *(each.replica for each in unsettled))), None)

    def events_of(self, name: str) -> tuple[EventView, ...]:
        """Return the events of an object, the latest first."""
        found = [event for event in self.events if event.involved_object.name == name]
        return tuple(sorted(found, key=lambda event: event.time or LONG_AGO, reverse=True))


def template_shape(spec: RoleSpec) -> PodShape | None:
    """Return the pod shape of a role's template, None if it is invalid."""
    return parse_shape(spec.template.get("spec") or {})
