"""Narrow views of the objects that a job owns: only the fields that decisions are made from."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from paddlejob.api.meta import ObjectMeta, View


class ContainerWaiting(View, frozen=True):
    """Why a container is not started."""

    reason: str = ""
    message: str = ""


class ContainerRunning(View, frozen=True):
    """Since when a container runs."""

    started_at: datetime | None = None


class ContainerTerminated(View, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(View, frozen=True):
    """One of the three is set."""

    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(View, frozen=True):
    """The state of one container."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodCondition(View, frozen=True):
    """Such as PodScheduled=False with the scheduler's reason."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodAddress(View, frozen=True):
    """One of the addresses of a pod, which has one of each family on a dual-stack cluster."""

    ip: str = ""


class PodStatus(View, frozen=True):
    """What kubelet and scheduler say about a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodAddress, ...] = msgspec.field(default=(), name="podIPs")
    conditions: tuple[PodCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodSpec(View, frozen=True):
    """Where a pod runs, and what becomes of it when its containers end."""

    node_name: str = ""
    restart_policy: str = ""


class Pod(View, frozen=True):
    """A pod of a job."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def share_parts(pod: Pod, share: Callable[[Any], Any]) -> None:
    """Replace what a pod of the cache has in common with others by what `share` returns for it.

    Most pods have the same conditions, and the containers of those that started in the same second are equal.
    """
    set_field, status = msgspec.structs.force_setattr, pod.status
    set_field(pod, "spec", share(pod.spec))
    if status == _NO_STATUS:
        return  # the one that all pods without a status have
    set_field(status, "phase", share(status.phase))
    set_field(status, "conditions", share(status.conditions))
    for field in ("init_container_statuses", "container_statuses"):
        set_field(status, field, tuple(map(share, getattr(status, field))))


_NO_STATUS = PodStatus()


class Service(View, frozen=True):
    """A pod's headless service; its ports are fixed, so that it exists is all there is to know."""

    metadata: ObjectMeta


class ConfigMap(View, frozen=True):
    """The environment of a job, or the recorder."""

    metadata: ObjectMeta
    data: dict[str, str] = {}
    fingerprint: str = ""
    """Hash of the data of an immutable ConfigMap, set in place of the data by a reader that keeps no more."""
