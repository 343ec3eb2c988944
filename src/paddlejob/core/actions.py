"""The closed set of actions that a reconcile may take, and the plan that holds them."""

from __future__ import annotations

import enum

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJobStatus
from paddlejob.core.messages import one_line


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
    """Create an object; that it exists already and is ours counts as done."""

    kind: Kind
    name: str
    manifest: JsonObject


class InstallRecorder(msgspec.Struct, frozen=True):
    """Create the namespace's ConfigMap with the recorder; no job fails or waits because that fails."""

    name: str
    manifest: JsonObject


class ReplaceConfig(msgspec.Struct, frozen=True):
    """Give the job's ConfigMap new data, if it is still the version that was looked at."""

    name: str
    manifest: JsonObject
    resource_version: str


class PatchGroup(msgspec.Struct, frozen=True):
    """Change fields of the job's own PodGroup or Workload, by a merge patch: the rest is its scheduler's."""

    kind: Kind
    name: str
    metadata: JsonObject
    """What must still be so: its UID, or its resourceVersion too."""
    part: str
    """`spec`, or `status`, which is a subresource."""
    changes: JsonObject


class AnnotatePod(msgspec.Struct, frozen=True):
    """Annotate a pod with the hash of its ConfigMap.

    The kubelet tries a container whose ConfigMap was missing again at once when the pod changes,
    and only after ten to fifteen seconds otherwise.
    """

    name: str
    uid: str
    config_hash: str


class Delete(msgspec.Struct, frozen=True):
    """Delete exactly this object; that it is gone or another one by now counts as done."""

    kind: Kind
    name: str
    uid: str
    force: bool = False
    """Without waiting for its kubelet, which has had its time."""


class DeleteJob(msgspec.Struct, frozen=True):
    """Delete the job itself, whose time after its end is over."""

    name: str
    uid: str


class RemoveFinalizer(msgspec.Struct, frozen=True):
    """Take a finalizer of an earlier operator off the job."""

    finalizer: str


Action = (
    Create | InstallRecorder | ReplaceConfig | PatchGroup | AnnotatePod | Delete | DeleteJob | RemoveFinalizer
)

Stages = tuple[tuple[Action, ...], ...]
"""Actions side by side, one stage after the other."""


class EventType(enum.StrEnum):
    """How worried a reader of `kubectl describe` should be."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Event(msgspec.Struct, frozen=True):
    """Something to tell on the job, in one line."""

    type: EventType
    reason: str
    message: str

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "message", one_line(self.message))


class Plan(msgspec.Struct, frozen=True):
    """The outcome of one reconcile.

    The shell writes `status` first, then tells `events`, then runs `stages` one after the other, the actions
    of a stage concurrently; a failure ends the reconcile. `events_when_done` follow the last stage.
    """

    status: PaddleJobStatus
    stages: Stages = ()
    events: tuple[Event, ...] = ()
    events_when_done: tuple[Event, ...] = ()
    requeue_after_seconds: float | None = None
    """Set only where time itself changes the outcome."""
    is_delayed: bool = False
    """Whether creations have to wait: what could not be created last time still holds."""


def soonest(*waits: float | None) -> float | None:
    """Return the shortest of several waits, None where there is none."""
    return min((wait for wait in waits if wait is not None), default=None)
