"""When a kubelet starts a container again, and how long it waits before."""

from __future__ import annotations

FIRST_BACK_OFF_SECONDS = 10.0
MAX_BACK_OFF_SECONDS = 300.0
BACK_OFF_RESET_SECONDS = 600.0
"""A container that ran for this long starts again without delay."""


def is_restarted(restart_policy: str, exit_code: int) -> bool:
    """Whether a container that has ended is started again."""
    return restart_policy == "Always" or (restart_policy == "OnFailure" and exit_code != 0)


def back_off_seconds(
    restarts: int, first_seconds: float = FIRST_BACK_OFF_SECONDS, max_seconds: float = MAX_BACK_OFF_SECONDS
) -> float:
    """Return the delay after so many restarts: none before the first, then doubling."""
    return min(first_seconds * 2 ** (restarts - 1), max_seconds) if restarts else 0.0


def back_off_message(seconds: float, container: str, pod: str = "") -> str:
    """Return the kubelet's message for a container in CrashLoopBackOff; `pod` as name_namespace(uid)."""
    suffix = f" pod={pod}" if pod else ""
    minutes, rest = divmod(seconds, 60)
    duration = f"{minutes:g}m{rest:g}s" if minutes else f"{rest:g}s"
    return f"back-off {duration} restarting failed container={container}{suffix}"
