"""Finds jobs that have stopped making progress, and the rank that the others wait for.

Time-outs are learned from the job itself, for each phase: a job is given several times as long as it ever
took to its next step, and evaluations and checkpoints by what they took. Pure: the caller has the
clock, which only moves forward.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Failure, HangPolicy, Phase
from paddlejob.core.attempts.new_attempt import NewAttempt
from paddlejob.core.messages import duration

if TYPE_CHECKING:
    from paddlejob.core.observed import Observed

TRAINING, ENDED = "training", "ended"
PATIENCE = 5.0
"""How many times as long as the longest pause so far is too long."""
OTHER_PHASES = 6
"""How many times as long evaluations and checkpoints may take at least: they come seldom, and take long."""
NAMED_RANKS = 3


class HangLimits(msgspec.Struct, frozen=True):
    """Between what time-outs are, however short or long the steps of a job."""

    floor_seconds: float = 600.0
    ceiling_seconds: float = 7200.0

    def seconds(self, phase: str, longest_pause: float) -> float:
        """Return how long a rank may be without a step in a phase."""
        floor = self.floor_seconds * (1 if phase == TRAINING else OTHER_PHASES)
        return max(floor, min(self.ceiling_seconds, PATIENCE * longest_pause))


class RankPace:
    """How one process makes progress."""

    def __init__(self, name: str, node: str, now: float) -> None:
        self.name = name
        """As people call it: worker-1."""
        self.node = node
        self.step = 0
        self.phase = ""
        self.is_waiting = False
        """Whether it is where ranks wait for each other."""
        self.stack = ""
        """What it is doing, as far as it was asked."""
        self.heard_at = now
        self.moved_at = now
        self._longest: dict[str, float] = {}
        """The longest pause between two moves, by phase."""

    @property
    def place(self) -> str:
        """Its name and its node."""
        return f"{self.name} on {self.node}" if self.node else self.name

    def hear(self, step: int, phase: str, *, is_waiting: bool, now: float) -> None:
        """Note a report. A step or another phase is a move; a smaller step is that of a new process."""
        if step != self.step or phase != self.phase:
            if self.phase and step >= self.step:
                pause = now - self.moved_at
                self._longest[self.phase] = max(pause, self._longest.get(self.phase, 0.0))
            self.moved_at = now
            self.stack = ""
        self.step, self.phase, self.is_waiting, self.heard_at = step, phase, is_waiting, now

    def longest_pause(self, phase: str) -> float:
        """Return the longest pause so far."""
        return self._longest.get(phase, 0.0)


class Hang(msgspec.Struct, frozen=True):
    """A job without progress."""

    attempt: int
    """Whose pods these are."""
    step: int
    seconds: int
    odd: tuple[str, ...]
    """The ranks that the others wait for, such as worker-1 on node-b; empty where none stands out."""
    message: str


def find_hang(
    ranks: Iterable[RankPace], now: float, *, attempt: int, silent_seconds: float, limits: HangLimits
) -> Hang | None:
    """Return what is wrong with a job none of whose ranks makes progress, None while one does.

    `silent_seconds` is after what time a rank that has not been heard is out of reach. Where all are, the way
    to them may be broken, and nothing is known.
    """
    every = sorted((rank for rank in ranks if rank.phase != ENDED), key=lambda rank: rank.name)
    heard = [rank for rank in every if now - rank.heard_at < silent_seconds]
    if not heard:
        return None
    longest = {rank.phase: max(each.longest_pause(rank.phase) for each in every) for rank in every}
    if any(now - rank.moved_at < limits.seconds(rank.phase, longest[rank.phase]) for rank in every):
        return None
    seconds = int(now - max(rank.moved_at for rank in every))
    odd, why = _odd(every, heard)
    step = max(rank.step for rank in every)
    text = f"no step for {duration(seconds)} (step {step})"
    message = f"{text}: {why}" if why else text
    return Hang(attempt, step, seconds, tuple(rank.place for rank in odd), message)


def _odd(every: list[RankPace], heard: list[RankPace]) -> tuple[list[RankPace], str]:
    """Return the ranks that differ from all others, and how."""
    silent = [rank for rank in every if rank not in heard]
    if silent:
        return silent, f"{_names(silent)} {_verb(silent, 'is', 'are')} out of reach"
    if len(every) > 1:
        busy = [rank for rank in every if not rank.is_waiting]
        if 0 < len(busy) < len(every):
            return busy, f"{_names(busy)} {_verb(busy, 'does', 'do')} not take part where the others wait"
        behind = [rank for rank in every if rank.step < max(each.step for each in every)]
        if behind:
            return behind, f"{_names(behind)} {_verb(behind, 'is', 'are')} behind"
        return [], f"all {len(every)} ranks wait"
    return [], ""


def _names(ranks: list[RankPace]) -> str:
    named = ", ".join(rank.place for rank in ranks[:NAMED_RANKS])
    more = len(ranks) - NAMED_RANKS
    return f"{named} and {more} more" if more > 0 else named


def _verb(ranks: list[RankPace], one: str, many: str) -> str:
    return one if len(ranks) == 1 else many


def hung(job: Observed) -> NewAttempt | None:
    """Find that the job hangs and is to be restarted then, unless its restarts are used up."""
    hang, spec = job.given.hang, job.job.spec
    if hang is None or spec.hang_policy != HangPolicy.RESTART or job.status.restarts >= spec.backoff_limit:
        return None
    pod = hang.odd[0].partition(" ")[0] if hang.odd else ""
    failure = Failure(job.status.attempt, pod, Reason.HUNG, message=hang.message, time=job.now)
    return NewAttempt(Phase.RESTARTING, Reason.HUNG, hang.message, failure=failure)
