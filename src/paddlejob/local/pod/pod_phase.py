"""A pod's phase, from the states of its containers, by the kubelet's rules."""

from __future__ import annotations

from collections.abc import Sequence

from paddlejob.api.pod import ContainerStatus


def of(restart_policy: str, init: Sequence[ContainerStatus], containers: Sequence[ContainerStatus]) -> str:
    """Return Pending, Running, Succeeded or Failed."""
    for status in init:
        ended = status.state.terminated
        if ended is not None and ended.exit_code != 0 and restart_policy == "Never":
            return "Failed"
    if any(_never_started(status) for status in containers):
        return "Pending"
    endings = [status.state.terminated for status in containers]
    if not all(endings) or restart_policy == "Always":
        return "Running"
    if all(ended is not None and ended.exit_code == 0 for ended in endings):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" else "Running"


def _never_started(status: ContainerStatus) -> bool:
    state = status.state
    return state.running is None and state.terminated is None and status.last_state.terminated is None
