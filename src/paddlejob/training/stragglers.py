"""Finds the rank that slows the others down.

Ranks that wait for each other take the same number of steps, so step rates do not show a slow rank. It shows
in the time of a step: the slow rank computes longer and waits less than most. The stages of a pipeline
execute different layers, so only ranks of the same stage are compared. Ranks that do not wait for each other,
as in an asynchronous parameter server job, cannot slow each other down.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable

import msgspec

WINDOW_STEPS = 20
"""Number of steps to average over. At the rate of reports a slow rank is found within 30 steps."""
SLOWER, STILL_SLOWER = 1.5, 1.25
"""Ratio of computing times above which a rank is a straggler, and above which it remains one."""
NOTABLE = 0.1
"""Minimum part of a step that the others lose; being slow at something negligible does not matter."""
MADE_UP = 0.5
"""Minimum part of its extra time that a straggler saves by waiting less."""


class StepTime(msgspec.Struct, frozen=True):
    """Average computing and waiting time of a step over a window."""

    own: float
    waiting: float
    stage: int = 0
    """Pipeline stage of the rank."""

    @property
    def total(self) -> float:
        """Duration of the whole step, equal for all ranks that advance together."""
        return self.own + self.waiting


class StepTimer:
    """Averages the reported times of a rank over its last steps."""

    def __init__(self) -> None:
        self._reports: deque[tuple[int, float, float]] = deque()
        """Step, own seconds and waiting seconds of each report in the window."""
        self.last: StepTime | None = None
        """None until there is a whole window."""

    def add_report(self, step: int, own_seconds: float, waiting_seconds: float, stage: int = 0) -> None:
        """Add a report; a smaller step comes from a new process."""
        reports = self._reports
        if reports and step < reports[-1][0]:
            reports.clear()
            self.last = None
        if reports and step == reports[-1][0]:
            return
        reports.append((step, own_seconds, waiting_seconds))
        while len(reports) > 1 and step - reports[1][0] >= WINDOW_STEPS:
            reports.popleft()
        first, own, waiting = reports[0]
        if (steps := step - first) >= WINDOW_STEPS:
            self.last = StepTime((own_seconds - own) / steps, (waiting_seconds - waiting) / steps, stage)


class Straggler(msgspec.Struct, frozen=True):
    """A rank that the others wait for in every step."""

    name: str
    own: float
    others: float
    stage: int | None = None
    """None unless the ranks form a pipeline."""

    def __str__(self) -> str:
        own, others = f"{self.own:.3g}s", f"{self.others:.3g}s"
        ranks = "ranks" if self.stage is None else f"ranks of stage {self.stage}"
        return f"{self.name} computes for {own} per step, most other {ranks} for {others}: they wait for it"


def find_stragglers(ranks: Iterable[tuple[str, StepTime]], known: Collection[str] = ()) -> list[Straggler]:
    """Return the ranks that slow the others down, the slowest first.

    A rank in `known` remains a straggler until it is clearly not slow.
    """
    stages: dict[int, list[tuple[str, StepTime]]] = defaultdict(list)
    for name, time in ranks:
        stages[time.stage].append((name, time))
    found = [
        msgspec.structs.replace(each, stage=stage if len(stages) > 1 else None)
        for stage, timed in stages.items()
        for each in _slow_ranks(timed, known)
    ]
    return sorted(found, key=lambda each: -each.own)


def _slow_ranks(timed: list[tuple[str, StepTime]], known: Collection[str]) -> list[Straggler]:
    owns, waits, totals = (
        sorted(each)
        for each in zip(*((time.own, time.waiting, time.total) for _, time in timed), strict=True)
    )
    # With two ranks, the faster one is the reference.
    lower = (len(timed) - 1) // 2
    usual, waited, step = owns[lower], waits[len(waits) // 2], totals[lower]
    return [
        Straggler(name, time.own, usual)
        for name, time in timed
        if time.own > (STILL_SLOWER if name in known else SLOWER) * usual
        and time.waiting < waited
        and time.total - step < (1 - MADE_UP) * (time.own - usual)
        and time.own - usual > NOTABLE / (2 if name in known else 1) * time.total
    ]
