"""All actions that a reconcile may take, and the plan that contains them."""

from __future__ import annotations

import enum

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJobStatus
from paddlejob.text import one_line


class Kind(enum.StrEnum):
    """Kinds of objects that a job owns."""

    POD = "Pod"
    SERVICE = "Service"
    CONFIG_MAP = "ConfigMap"
    POD_GROUP = "PodGroup"
    """Volcano's."""
    POD_GROUP_V1ALPHA2 = "PodGroup.v1alpha2.scheduling.k8s.io"
    POD_GROUP_V1BETA1 = "PodGroup.v1beta1.scheduling.k8s.io"
    WORKLOAD_V1BETA1 = "Workload.v1beta1.kueue.x-k8s.io"
    WORKLOAD_V1BETA2 = "Workload.v1beta2.kueue.x-k8s.io"


class Create(msgspec.Struct, frozen=True):
    """Create an object; if it already exists and is ours, this succeeds."""

    kind: Kind
    name: str
    manifest: JsonObject


class InstallRecorder(msgspec.Struct, frozen=True):
    """Create the namespace's ConfigMap with the recorder; jobs do not depend on it."""

    name: str
    manifest: JsonObject


class ReplaceConfig(msgspec.Struct, frozen=True):
    """Replace the data of the job's ConfigMap if it still has the observed version."""

    name: str
    manifest: JsonObject
    resource_version: str


class PatchGroup(msgspec.Struct, frozen=True):
    """Merge-patch the job's own PodGroup or Workload; its scheduler owns the other fields."""

    kind: Kind
    name: str
    metadata: JsonObject
    """Preconditions: its UID, or also its resourceVersion."""
    part: str
    """`spec` or the subresource `status`."""
    changes: JsonObject


class AnnotatePod(msgspec.Struct, frozen=True):
    """Annotate a pod with the hash of its ConfigMap.

    The kubelet retries a container whose ConfigMap was missing only after 10 to 15 seconds, but immediately
    when the pod changes.
    """

    name: str
    uid: str
    config_hash: str


STOP_DEADLINE_SECONDS = 1
"""The `activeDeadlineSeconds` of a stopped pod; the API server accepts no smaller value."""


class StopPod(msgspec.Struct, frozen=True):
    """End the containers of a pod within its grace period, and keep the pod with its logs.

    The kubelet enforces `activeDeadlineSeconds`, which can be set on a running pod. A pod without a node has
    no kubelet; it is marked as failed, and schedulers ignore failed pods.
    """

    name: str
    uid: str
    version_without_node: str = ""
    """The resourceVersion of a pod without a node, so that it is not marked after it was bound."""


class Delete(msgspec.Struct, frozen=True):
    """Delete this object by UID; if it is gone or replaced, this succeeds."""

    kind: Kind
    name: str
    uid: str
    force: bool = False
    """Delete without waiting for the kubelet."""


class DeleteJob(msgspec.Struct, frozen=True):
    """Delete the job itself after its time to live."""

    name: str
    uid: str


class RemoveFinalizer(msgspec.Struct, frozen=True):
    """Remove the finalizer of an earlier operator from the job."""

    finalizer: str


Action = (
    Create
    | InstallRecorder
    | ReplaceConfig
    | PatchGroup
    | AnnotatePod
    | StopPod
    | Delete
    | DeleteJob
    | RemoveFinalizer
)

Stages = tuple[tuple[Action, ...], ...]
"""Stages run one after the other, the actions of a stage concurrently."""


class EventType(enum.StrEnum):
    """Event severity, as shown by `kubectl describe`."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Event(msgspec.Struct, frozen=True):
    """An event to record on the job."""

    type: EventType
    reason: str
    message: str

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "message", one_line(self.message))


class Milestone(enum.IntEnum):
    """How far a restart has come."""

    RECORDED = 0
    STOPPED = 1
    """No program or pod of an earlier attempt is left."""
    PLACED = 2
    """All pods have an address, and their programs may start."""


class Plan(msgspec.Struct, frozen=True):
    """The outcome of one reconcile.

    The caller writes `status` first, then records `events`, then runs `stages`. A failure ends the reconcile.
    `events_when_done` follow the last stage.
    """

    status: PaddleJobStatus
    stages: Stages = ()
    events: tuple[Event, ...] = ()
    events_when_done: tuple[Event, ...] = ()
    requeue_after_seconds: float | None = None
    """When to reconcile again even if nothing changes."""
    is_delayed: bool = False
    """Whether creations are delayed, so that the failures of the last reconcile still apply."""
    milestone: Milestone = Milestone.RECORDED
    """The last one of a restart, once the stages have run."""


def soonest(*waits: float | None) -> float | None:
    """Return the shortest of several waits, None if there is none."""
    return min((wait for wait in waits if wait is not None), default=None)
