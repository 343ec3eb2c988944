"""How often ranks report. The caller passes the time."""

from __future__ import annotations

from collections.abc import Iterable

REQUESTS_PER_SECOND = 50.0
"""Reports per second that the whole operator asks for; namespaces share them fairly."""
MIN_SECONDS = 5.0
MAX_SECONDS = 300.0


def next_seconds(reporters: int, per_second: float = REQUESTS_PER_SECOND) -> float:
    """Return the interval between two reports of each reporter."""
    return min(MAX_SECONDS, max(MIN_SECONDS, reporters / per_second))


def namespace_share(reporters: Iterable[int]) -> float:
    """Return the maximum reports per second of each namespace, given the reporters of each.

    The share is the same for all namespaces. Namespaces that need less leave the rest to the others.
    """
    left, needs = REQUESTS_PER_SECOND, sorted(count / MIN_SECONDS for count in reporters)
    for index, need in enumerate(needs):
        share = left / (len(needs) - index)
        if need > share:
            return share
        left -= need
    return REQUESTS_PER_SECOND


class Bucket:
    """A token bucket."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Take a token; return whether there was one."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) if self._at else self._left
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """Return a token that was not used."""
        self._left = min(self._burst, self._left + 1)
