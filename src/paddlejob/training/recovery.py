"""The last recovery of a job in words."""

from __future__ import annotations

from paddlejob.api.training import Recovery
from paddlejob.text import duration

MAX_PRECISE_SECONDS = 60.0
"""Longer times are shown in whole seconds."""


def in_words(recovery: Recovery) -> str:
    """Return a recovery and its measured parts in one line."""
    parts = ", ".join(f"{part} {_seconds(seconds)}" for part, seconds in recovery.parts().items())
    total = recovery.total_seconds
    took = "" if total is None else f", {_seconds(total)} to the next new step"
    return f"{recovery.kind}{took}{f': {parts}' if parts else ''}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f}s" if seconds < MAX_PRECISE_SECONDS else duration(seconds)
