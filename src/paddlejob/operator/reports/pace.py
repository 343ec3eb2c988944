"""How often is often enough: pure, the caller says what time it is."""

from __future__ import annotations

REQUESTS_PER_SECOND = 50.0
"""How many reports the whole operator asks for."""
SHORTEST_SECONDS = 5.0
LONGEST_SECONDS = 300.0


def next_seconds(reporters: int) -> float:
    """Return when a reporter is to report again, of so many."""
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, reporters / REQUESTS_PER_SECOND))


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
