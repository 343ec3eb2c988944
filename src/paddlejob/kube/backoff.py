"""How long to wait after failures in a row: doubling, up to a bound, with jitter."""

from __future__ import annotations

import random

import msgspec

_MAX_DOUBLINGS = 60


class Backoff(msgspec.Struct, frozen=True):
    """Delays that double with every failure."""

    first_seconds: float = 0.1
    max_seconds: float = 120.0

    def base_seconds(self, failures: int) -> float:
        """Return the delay after so many failures in a row, without jitter."""
        return min(self.max_seconds, self.first_seconds * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))

    def delay_seconds(self, failures: int, rng: random.Random) -> float:
        """Return the delay after so many failures in a row, up to a quarter longer at random."""
        return self.base_seconds(failures) * rng.uniform(1.0, 1.25)
