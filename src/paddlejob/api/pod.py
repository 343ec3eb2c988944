"""Partial views of a job's objects, with only the fields that decisions need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from paddlejob.api.meta import ObjectMeta, View


class ContainerWaiting(View, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerRunning(View, frozen=True):
    started_at: datetime | None = None


class ContainerTerminated(View, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(View, frozen=True):
    """Exactly one of the three is set."""

    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(View, frozen=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodCondition(View, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodAddress(View, frozen=True):
    """An address of a pod; on a dual-stack cluster a pod has one per address family."""

    ip: str = ""


class PodStatus(View, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[PodAddress, ...] = msgspec.field(default=(), name="podIPs")
    conditions: tuple[PodCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodSpec(View, frozen=True):
    node_name: str = ""
    restart_policy: str = ""
    active_deadline_seconds: int | None = None


class Pod(View, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def share_parts(pod: Pod, share: Callable[[Any], Any]) -> None:
    """Deduplicate the parts of a cached pod with `share`.

    Most pods have the same conditions, and containers that started in the same second are equal.
    """
    set_field, status = msgspec.structs.force_setattr, pod.status
    set_field(pod, "spec", share(pod.spec))
    if status == _NO_STATUS:
        return  # already shared by all pods without a status
    set_field(status, "phase", share(status.phase))
    set_field(status, "conditions", share(status.conditions))
    for field in ("init_container_statuses", "container_statuses"):
        set_field(status, field, tuple(map(share, getattr(status, field))))


_NO_STATUS = PodStatus()


class Service(View, frozen=True):
    """A pod's headless Service; only its existence matters."""

    metadata: ObjectMeta


class ConfigMap(View, frozen=True):
    """The ConfigMap with a job's environment, or with the recorder."""

    metadata: ObjectMeta
    data: dict[str, str] = {}
    fingerprint: str = ""
    """Hash of the data of an immutable ConfigMap; replaces the data in caches."""


def kubectl_status(pod: Pod) -> str:
    """Return the status of a pod as `kubectl get pods` shows it."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    if pod.status.reason:
        return pod.status.reason
    if pod.status.phase in ("Failed", "Succeeded"):
        return "Completed" if pod.status.phase == "Succeeded" else _failure(statuses)
    return next(filter(None, map(_trouble, statuses)), pod.status.phase)


def _trouble(status: ContainerStatus) -> str:
    waiting = status.state.waiting
    return waiting.reason if waiting is not None else ""


def _failure(statuses: Iterable[ContainerStatus]) -> str:
    for status in statuses:
        ended = status.state.terminated
        if ended is not None and ended.exit_code:
            return f"{ended.reason} {ended.exit_code}"
    return "Failed"
