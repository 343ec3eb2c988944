"""Narrow views of the objects that a job owns: only the fields that decisions are made from."""

from __future__ import annotations

from datetime import datetime

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
    last_transition_time: datetime | None = None


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


class Service(View, frozen=True):
    """A pod's headless service; its ports are fixed, so that it exists is all there is to know."""

    metadata: ObjectMeta


class ConfigMap(View, frozen=True):
    """The job's environment."""

    metadata: ObjectMeta
    data: dict[str, str] = {}
