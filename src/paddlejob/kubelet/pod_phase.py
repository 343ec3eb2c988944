"""A pod's phase, from the states of its containers, by the kubelet's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ContainerOutcome(NamedTuple):
    """What the phase depends on, of one container."""

    has_started: bool
    """It runs or ever ran."""
    exit_code: int | None
    """None while it runs or waits to be started (again)."""


def phase_of(
    restart_policy: str,
    init: Sequence[ContainerOutcome],
    containers: Sequence[ContainerOutcome],
    *,
    ends: bool = False,
) -> str:
    """Return Pending, Running, Succeeded or Failed; `ends` when no container will be started again."""
    if any(each.exit_code and (restart_policy == "Never" or ends) for each in init):
        return "Failed"
    if not all(each.has_started for each in containers):
        return "Pending"
    if any(each.exit_code is None for each in containers) or (restart_policy == "Always" and not ends):
        return "Running"
    if not any(each.exit_code for each in containers):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" or ends else "Running"
