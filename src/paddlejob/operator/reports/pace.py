"""How often ranks report: pure, the caller gives the time."""

from __future__ import annotations

from collections.abc import Iterable

REQUESTS_PER_SECOND = 50.0
"""How many reports a second the whole operator asks for; namespaces share them fairly."""
SHORTEST_SECONDS = 5.0
LONGEST_SECONDS = 300.0


def next_seconds(reporters: int, per_second: float = REQUESTS_PER_SECOND) -> float:
    """Return the time to the next report of each of these reporters, at so many reports a second."""
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, reporters / per_second))


def namespace_share(reporters: Iterable[int]) -> float:
    """Return how many reports a second each namespace gets at most, by the reporters of each.

    The share is the same for all, and as large as the rate of the whole operator allows: namespaces that need
    less than their part leave the rest to the others.
    """
    left, needs = REQUESTS_PER_SECOND, sorted(count / SHORTEST_SECONDS for count in reporters)
    for index, need in enumerate(needs):
        share = left / (len(needs) - index)
        if need > share:
            return share
        left -= need
    return REQUESTS_PER_SECOND


class Bucket:
    """A budget that fills at a rate, up to a number that may be spent at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Spend one, if there is one."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) if self._at else self._left
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """Return one that was not spent after all."""
        self._left = min(self._burst, self._left + 1)
