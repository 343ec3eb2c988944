"""The kubelet's rules for restarting containers, its back-off, and the phases of pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FIRST_BACK_OFF_SECONDS = 10.0
MAX_BACK_OFF_SECONDS = 300.0
BACK_OFF_RESET_SECONDS = 600.0
"""A container that ran for this long restarts without delay."""


def is_restarted(restart_policy: str, exit_code: int) -> bool:
    """Return whether the kubelet restarts a container that exited."""
    return restart_policy == "Always" or (restart_policy == "OnFailure" and exit_code != 0)


def back_off_seconds(
    restarts: int, first_seconds: float = FIRST_BACK_OFF_SECONDS, max_seconds: float = MAX_BACK_OFF_SECONDS
) -> float:
    """Return the delay before the next restart: 0 for the first one, then doubling."""
    return min(first_seconds * 2 ** (restarts - 1), max_seconds) if restarts else 0.0


def back_off_message(seconds: float, container: str, pod: str = "") -> str:
    """Return the kubelet's message for a container in CrashLoopBackOff; `pod` as name_namespace(uid)."""
    suffix = f" pod={pod}" if pod else ""
    minutes, rest = divmod(seconds, 60)
    duration = f"{minutes:g}m{rest:g}s" if minutes else f"{rest:g}s"
    return f"back-off {duration} restarting failed container={container}{suffix}"


class ContainerOutcome(NamedTuple):
    """The part of a container's state that determines the phase."""

    has_started: bool
    """Whether it runs or ever ran."""
    exit_code: int | None
    """None while it runs or waits for a start or restart."""


def phase_of(
    restart_policy: str,
    init: Sequence[ContainerOutcome],
    containers: Sequence[ContainerOutcome],
    *,
    ends: bool = False,
) -> str:
    """Return Pending, Running, Succeeded or Failed; `ends` means that no container will be restarted."""
    if any(each.exit_code and (restart_policy == "Never" or ends) for each in init):
        return "Failed"
    if not all(each.has_started for each in containers):
        return "Pending"
    if any(each.exit_code is None for each in containers) or (restart_policy == "Always" and not ends):
        return "Running"
    if not any(each.exit_code for each in containers):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" or ends else "Running"
