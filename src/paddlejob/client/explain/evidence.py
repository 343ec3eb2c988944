"""What an explanation is drawn from: the job and what is around it, as far as its reader may see it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property

import msgspec
from msgspec.structs import replace

from paddlejob.api.defaulting import effective_of
from paddlejob.api.meta import JsonObject
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
    shape_of,
)
from paddlejob.core.attempts.elastic import with_workers
from paddlejob.core.explain import first_obstacle
from paddlejob.core.gang.model import GangSystem
from paddlejob.core.pod_set import Attempts, ObservedPod, PodSet, PodState, Replica, pod_set_of

_UP = (PodState.RUNNING, PodState.SUCCEEDED)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class GangEvidence(msgspec.Struct, frozen=True):
    """The object that a scheduler or a queue knows the job by."""

    system: GangSystem
    group: PodGroup
    volcano_queue: VolcanoQueue | None = None
    local_queue: LocalQueue | None = None
    pending: tuple[PendingWorkload, ...] = ()
    """What waits in the queue of Kueue, in order; empty where that is not served, or only to others."""


class Evidence(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """All that is known. What could not be read is empty, and named in `unseen`."""

    job: PaddleJob
    now: datetime
    """By the API server's clock."""
    pods: tuple[Pod, ...] = ()
    """Those of this very job."""
    shapes: dict[Role, PodShape] = {}
    """For each role with an unscheduled pod, that pod as it was admitted."""
    pod_specs: dict[Role, JsonObject] = {}
    """For each role the spec of its first pod."""
    events: tuple[EventView, ...] = ()
    """About the job, its gang, its claims, and the pod that the others wait for."""
    quotas: tuple[ResourceQuota, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    nodes: tuple[Node, ...] | None = None
    """None where they cannot be seen."""
    used: dict[str, dict[str, int]] = {}
    """What the pods of each node ask for, added up in nanos, and their number as `pods`."""
    sees_all_pods: bool = True
    """Whether `used` counts all pods, also those of other namespaces."""
    claims: dict[str, Claim] | None = None
    """All claims of the namespace by name, None where they cannot be seen."""
    volumes: dict[str, PersistentVolume] = {}
    """The volumes that the job's claims are bound to, by name."""
    storage_classes: dict[str, StorageClass] | None = None
    gang: GangEvidence | None = None
    log: tuple[str, ...] = ()
    """The last lines of the pod that failed first."""
    log_note: str = ""
    """The source of these lines, if it is not the log of the pod, or why there are none."""
    unseen: tuple[str, ...] = ()
    run: str = ""
    """The name of the run on this machine; empty for a job on a cluster."""

    def command(self, verb: str) -> str:
        """Return what to type to act on the job."""
        return f"paddlejob {verb} {self.run}" if self.run else f"kubectl pdj {verb} {self.job.name}"

    @cached_property
    def pod_set(self) -> PodSet:
        """The job's pods in order, by replica."""
        return pod_set_of(self.job.name, self.roles, self.pods, Attempts.of(self.job.status))

    @cached_property
    def roles(self) -> tuple[tuple[Role, RoleSpec], ...]:
        """The roles with the replicas that the job goes on with, never more than there may be."""
        roles = with_workers(effective_of(self.job), self.job.status.workers).roles
        return tuple((role, replace(spec, replicas=min(spec.replicas, MAX_REPLICAS))) for role, spec in roles)

    @cached_property
    def missing(self) -> tuple[Replica, ...]:
        """Replicas whose pod has not been created."""
        return self.pod_set.to_create

    @cached_property
    def unplaced(self) -> tuple[ObservedPod, ...]:
        """Pods without a node."""
        return tuple(each for each in self.pod_set.active if not each.pod.spec.node_name and _waits(each))

    @cached_property
    def blocking(self) -> Replica | None:
        """The replica that the others wait for: one that something holds up, else the first missing one."""
        pods = self.pod_set
        unsettled = [
            each for each in pods.active if each.state not in _UP and each.replica not in pods.finished
        ]
        held_up = first_obstacle(unsettled)
        if held_up is not None:
            return held_up[0].replica
        return next(iter((*pods.missing, *(each.replica for each in unsettled))), None)

    def events_of(self, name: str) -> tuple[EventView, ...]:
        """Return the events of an object, the latest first."""
        found = [event for event in self.events if event.involved_object.name == name]
        return tuple(sorted(found, key=_told_at, reverse=True))


def template_shape(spec: RoleSpec) -> PodShape | None:
    """Return the shape of a role's template."""
    return shape_of(spec.template.get("spec") or {})


def _waits(member: ObservedPod) -> bool:
    return member.pod.status.phase not in ("Succeeded", "Failed")


def _told_at(event: EventView) -> datetime:
    return event.time or _LONG_AGO
