"""Outcomes of simulated containers, chosen by a test or a benchmark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from paddlejob.api.meta import JsonObject


class Exit(msgspec.Struct, frozen=True):
    """Runs for a while and exits."""

    code: int = 0
    after_seconds: float = 10.0
    message: str = ""
    """The termination message of the container."""
    reason: str = ""
    """As the kubelet reports it; Completed or Error when empty."""


class ExitWhenReleased(msgspec.Struct, frozen=True):
    """Runs until a test sets an event, then exits; for tests in real time."""

    released: asyncio.Event
    exit: Exit = Exit()
    """How it exits; `after_seconds` is ignored."""


class RunForever(msgspec.Struct, frozen=True):
    """Runs until the pod is deleted, as a parameter server does."""


class Evict(msgspec.Struct, frozen=True):
    """Runs for a while; then its kubelet stops the pod: node pressure, shutdown, or the pod's deadline."""

    after_seconds: float = 10.0
    message: str = "The node was low on resource: memory."
    reason: str = "Evicted"
    is_disruption: bool = True
    """Whether the kubelet sets the condition DisruptionTarget, as under node pressure."""
    grace_seconds: float | None = 1.0
    """How long its containers have to stop; None for the pod's own grace period."""
    exit_code: int = 143
    """How its containers exit after SIGTERM; one that has to be killed exits with 137."""


class Reject(msgspec.Struct, frozen=True):
    """The kubelet of its node rejects the pod; no container starts."""

    reason: str = "OutOfcpu"
    message: str = "Node didn't have enough resource: cpu, requested: 4000, used: 30100, capacity: 32000"


class LoseNode(msgspec.Struct, frozen=True):
    """Runs for a while; then the node is lost.

    The pod is marked not ready, deleted after the toleration, and then Terminating until it is force-deleted.
    """

    after_seconds: float = 10.0
    toleration_seconds: float = 300.0
    removed_after_seconds: float | None = 60.0
    """Counted from the deletion; None leaves the pod Terminating forever."""


class FailImagePull(msgspec.Struct, frozen=True):
    """The image cannot be pulled, temporarily or permanently."""

    for_seconds: float | None = None
    then: Exit | RunForever = Exit()


class Unschedulable(msgspec.Struct, frozen=True):
    """No node can run the pod, temporarily or permanently."""

    for_seconds: float | None = None
    then: Exit | RunForever = Exit()


Outcome = Exit | ExitWhenReleased | RunForever | Evict | Reject | LoseNode | FailImagePull | Unschedulable

Behaviour = Callable[[JsonObject, str, int], Outcome]
"""Returns the outcome of a container, given its pod, its name and its number of restarts.

Called for the first container when the pod appears, for the others when they start, and before each restart.
"""


def crash(code: int = 1, *, after_seconds: float = 5.0, message: str = "") -> Exit:
    """Return the end of a container that fails."""
    return Exit(code, after_seconds, message)


def run_out_of_memory(*, after_seconds: float = 5.0) -> Exit:
    """Return the end of a container that the kernel kills."""
    return Exit(137, after_seconds, reason="OOMKilled")


def reboot(*, after_seconds: float = 5.0) -> Exit:
    """Return the end of a container that the kubelet no longer finds after its node has booted again."""
    message = "The container could not be located when the pod was terminated"
    return Exit(137, after_seconds, message, "ContainerStatusUnknown")


def fail_to_start() -> Exit:
    """Return the end of a container that its node could not start."""
    message = (
        "failed to create container loggers: failed to create and open log file: no space left on device"
    )
    return Exit(128, 0.0, message, "StartError")


def outlive_deadline(*, after_seconds: float = 5.0) -> Evict:
    """Return the end of a pod that its kubelet stops because of the pod's own activeDeadlineSeconds."""
    message = "Pod was active on the node longer than the specified deadline"
    return Evict(after_seconds, message, "DeadlineExceeded", is_disruption=False, grace_seconds=None)


def exit_soon(pod: JsonObject, container: str, restarts: int) -> Outcome:  # noqa: ARG001
    """Let every container succeed after ten seconds."""
    return Exit()
