"""Finds the rank that slows the others down.

Ranks that wait for each other take as many steps, so step rates are blind: a slow rank spends more time on
its computation, and less where ranks wait for each other, than most. Ranks that do not wait for each other,
such as those of an asynchronous parameter server job, slow no other rank down. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Failure, Phase, StragglerPolicy
from paddlejob.core.attempts import backoff
from paddlejob.core.attempts.new_attempt import NewAttempt, depends_on_peers

if TYPE_CHECKING:
    from paddlejob.core.observed import Observed

WINDOW_STEPS = 20
"""Times are averaged over so many steps; with the pace of reports a rank is named within 30."""
SLOWER, STILL_SLOWER = 1.5, 1.25
"""How many times as long as the others a rank works by itself, and one that is known as a straggler."""
NOTABLE = 0.1
"""What part of a step the others must lose by that: to be slow at next to nothing does not matter."""
MADE_UP = 0.5
"""What part of its extra time a straggler must save by waiting less: the others wait for it then."""


class StepTime(msgspec.Struct, frozen=True):
    """Where the time of a step goes, on average over a window."""

    own: float
    waiting: float

    @property
    def total(self) -> float:
        """The time of a whole step, the same for all ranks that advance together."""
        return self.own + self.waiting


class StepTimer:
    """Averages what a rank reports over its last steps."""

    def __init__(self) -> None:
        self._reports: deque[tuple[int, float, float]] = deque()
        """Of the window: step, own seconds, waiting seconds."""
        self.last: StepTime | None = None
        """None before there is a whole window."""

    def add_report(self, step: int, own_seconds: float, waiting_seconds: float) -> None:
        """Note a report; a smaller step is that of a new process."""
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
            self.last = StepTime((own_seconds - own) / steps, (waiting_seconds - waiting) / steps)


class Straggler(msgspec.Struct, frozen=True):
    """A rank that the others wait for in every step."""

    name: str
    own: float
    others: float

    def __str__(self) -> str:
        own, others = f"{self.own:.3g}s", f"{self.others:.3g}s"
        return f"{self.name} computes for {own} per step, most other ranks for {others}: they wait for it"


def find_stragglers(ranks: Iterable[tuple[str, StepTime]], known: Collection[str] = ()) -> list[Straggler]:
    """Return the ranks that slow the others down, the slowest first, by name and the time of their steps.

    One that is `known` to be slow is so until it is clearly not.
    """
    timed = list(ranks)
    if len(timed) < 2:
        return []
    owns, waits, totals = (
        sorted(each)
        for each in zip(*((time.own, time.waiting, time.total) for _, time in timed), strict=True)
    )
    # Of two, the faster is the measure of the slower.
    lower = (len(timed) - 1) // 2
    usual, waited, step = owns[lower], waits[len(waits) // 2], totals[lower]
    found = [
        Straggler(name, time.own, usual)
        for name, time in timed
        if time.own > (STILL_SLOWER if name in known else SLOWER) * usual
        and time.waiting < waited
        and time.total - step < (1 - MADE_UP) * (time.own - usual)
        and time.own - usual > NOTABLE / (2 if name in known else 1) * time.total
    ]
    return sorted(found, key=lambda each: -each.own)


class Slowdown(msgspec.Struct, frozen=True):
    """What slows a job down."""

    attempt: int
    """Whose pods these are."""
    pod: str
    """Of the slowest rank."""
    message: str
    is_lasting: bool = False
    """Whether it has lasted for so long that a restart on another node may be worth it."""


def replaced(job: Observed) -> NewAttempt | None:
    """Find a straggler that is to be replaced, unless restarts are used up or another node was no help.

    Where the same rank is slow again after it was replaced, or on a node that it was to avoid, it is the
    program or the cluster that makes it so, and not its node.
    """
    slow, spec, status = job.given.slowdown, job.job.spec, job.status
    if (
        slow is None
        or not slow.is_lasting
        or spec.straggler_policy != StragglerPolicy.REPLACE
        or not backoff.has_restarts_left(job.job)
    ):
        return None
    member = next((each for each in job.pods.active if each.pod.metadata.name == slow.pod), None)
    last = status.last_failure
    was_replaced = last is not None and (last.reason, last.pod) == (Reason.STRAGGLER, slow.pod)
    if member is None or was_replaced or member.pod.spec.node_name in status.suspect_nodes:
        return None
    return NewAttempt(
        Phase.RESTARTING,
        Reason.STRAGGLER,
        slow.message,
        all_pods=depends_on_peers(job.spec, member.replica.role),
        to_delete=(member,),
        failure=Failure(status.attempt, slow.pod, Reason.STRAGGLER, message=slow.message, time=job.now),
    )
