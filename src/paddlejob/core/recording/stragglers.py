"""Finds the rank that slows the others down.

All ranks take as many steps, so step rates are blind: who is slow spends more time on work of its own, and
less where ranks wait for each other, than most. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

WINDOW_STEPS = 30
SLOWER = 1.5
"""How many times as long as the others a rank works by itself."""
NOTABLE = 0.1
"""What part of a step the others must lose by that: to be slow at next to nothing does not matter."""


class StepTime(msgspec.Struct, frozen=True):
    """Where the time of a step goes, on average over a window."""

    own: float
    waiting: float


class StepTimer:
    """Cuts what a rank reports into windows of so many steps."""

    def __init__(self) -> None:
        self._began: tuple[int, float, float] | None = None
        self.last: StepTime | None = None
        """Of the last complete window."""
        self.windows = 0

    def hear(self, step: int, own_seconds: float, waiting_seconds: float) -> None:
        """Note a report; a smaller step is that of a new process."""
        if self._began is None or step < self._began[0]:
            self._began, self.last, self.windows = (step, own_seconds, waiting_seconds), None, 0
            return
        steps = step - self._began[0]
        if steps >= WINDOW_STEPS:
            self.last = StepTime(
                (own_seconds - self._began[1]) / steps, (waiting_seconds - self._began[2]) / steps
            )
            self.windows += 1
            self._began = (step, own_seconds, waiting_seconds)


class Straggler(msgspec.Struct, frozen=True):
    """A rank that the others wait for in every step."""

    name: str
    own: float
    others: float

    def __str__(self) -> str:
        own, others = f"{self.own:.3g}s", f"{self.others:.3g}s"
        return f"{self.name} computes for {own} per step, most other ranks for {others}: they wait for it"


def find_stragglers(ranks: Iterable[tuple[str, StepTime]]) -> list[Straggler]:
    """Return the ranks that slow the others down, by name and the time of their steps."""
    timed = list(ranks)
    if len(timed) < 2:
        return []
    owns, waits = (
        sorted(each) for each in zip(*((time.own, time.waiting) for _, time in timed), strict=True)
    )
    # Of two, the faster is the measure of the slower.
    usual, waited = owns[(len(owns) - 1) // 2], waits[len(waits) // 2]
    return [
        Straggler(name, time.own, usual)
        for name, time in timed
        if time.own > SLOWER * usual
        and time.waiting < waited
        and time.own - usual > NOTABLE * (time.own + time.waiting)
    ]
