"""Finds jobs that have stopped making progress, and the rank that the others wait for.

Timeouts are learned from the job itself, for each phase: a job is given several times as long as it ever
took to its next step, and evaluations and checkpoints by what they took. An operator that starts later than
the job has not seen its pauses: it reports a hang, and restarts the job only after the longest timeout. Pure:
the caller has the clock, which only moves forward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Failure, HangPolicy, PaddleJobStatus, Phase
from paddlejob.core.attempts import backoff
from paddlejob.core.attempts.new_attempt import NewAttempt
from paddlejob.core.messages import duration
from paddlejob.core.recording.stacks import Position

if TYPE_CHECKING:
    from paddlejob.core.observed import Observed

STARTING, TRAINING, EVALUATING, SAVING = "starting", "training", "evaluating", "saving"
OTHER, ENDED = "other", "ended"
_REPORTED_PHASES = frozenset({"", STARTING, TRAINING, EVALUATING, SAVING})
PATIENCE = 5.0
"""How many times as long as the longest pause so far is too long."""
OTHER_PHASES = 6
"""How many times as long evaluations and checkpoints may take at least: they come seldom, and take long."""
NAMED_RANKS = 3
NO_STEP, NO_REPORT = "no step for ", "no report for "


def known_phase(reported: str) -> str:
    """Return the phase that a rank reports; `other` for a name that is not one of the recorder's.

    Pauses are learned for each phase, so the number of phases is bounded.
    """
    return reported if reported in _REPORTED_PHASES else OTHER


class HangLimits(msgspec.Struct, frozen=True):
    """Bounds of timeouts, however short or long the steps of a job are."""

    floor_seconds: float = 600.0
    ceiling_seconds: float = 7200.0

    def seconds(self, phase: str, longest_pause: float) -> float:
        """Return how long a rank may be without a step in a phase."""
        floor = self.floor_seconds * (1 if phase == TRAINING else OTHER_PHASES)
        return max(floor, min(self.ceiling_seconds, PATIENCE * longest_pause))


class RankPace:
    """How one process makes progress."""

    def __init__(self, name: str, node: str, now: float, *, is_new: bool = True) -> None:
        self.name = name
        """As people call it: worker-1."""
        self.node = node
        self.step = 0
        self.phase = ""
        self.is_waiting = False
        """Whether it is where ranks wait for each other."""
        self.position: Position | None = None
        """Where it is, as far as it was asked."""
        self.is_new = is_new
        """Whether its pod is younger than this operator, which then has seen every pause."""
        self.since = now
        self.reported_at = now
        self.moved_at = now
        self._longest: dict[str, float] = {}
        """The longest pause between two moves, by phase."""

    @property
    def place(self) -> str:
        """Its name and its node."""
        return f"{self.name} on {self.node}" if self.node else self.name

    def add_report(self, step: int, phase: str, *, is_waiting: bool, now: float) -> None:
        """Note a report. A step or another phase is a move; a smaller step is that of a new process."""
        if step != self.step or phase != self.phase:
            if self.phase and step >= self.step:
                pause = now - self.moved_at
                self._longest[self.phase] = max(pause, self._longest.get(self.phase, 0.0))
            self.moved_at = now
            self.position = None
        self.step, self.phase, self.is_waiting, self.reported_at = step, phase, is_waiting, now

    def has_moved(self, now: float, *, within_seconds: float) -> bool:
        """Tell whether it makes progress, as far as can be told: some steps only Paddle itself counts."""
        counts_steps = self.step > 0 or self.phase != TRAINING
        return now - self.moved_at < within_seconds or not counts_steps

    def knows_pauses(self, now: float, *, after_seconds: float) -> bool:
        """Return whether every pause was seen, or those of a time that is long enough."""
        return self.is_new or now - self.since >= after_seconds

    def longest_pause(self, phase: str) -> float:
        """Return the longest pause so far."""
        return self._longest.get(phase, 0.0)


class Hang(msgspec.Struct, frozen=True):
    """A job without progress."""

    attempt: int
    """Attempt that the pods belong to."""
    step: int
    seconds: int
    odd: tuple[str, ...]
    """The ranks that the others wait for, such as worker-1 on node-b; empty where none stands out."""
    message: str
    has_reports: bool = True
    """Whether any rank still reports; otherwise all of them are silent, for which the network may be why."""
    is_learned: bool = True
    """Whether the timeout was learned from all pauses of the job; otherwise it may be too short."""
    stacks: tuple[tuple[str, str], ...] = ()
    """Where the ranks are, as far as they said so, those that stand out first."""


def find_hang(
    ranks: Iterable[RankPace],
    now: float,
    *,
    attempt: int,
    silent_seconds: float,
    limits: HangLimits,
    never_reported: Sequence[str] = (),
) -> Hang | None:
    """Return what is wrong with a job none of whose ranks makes progress, None while one does.

    `silent_seconds` is after what time a rank that has not reported is out of reach; `never_reported` are the
    pods that have not reported at all.
    """
    every = sorted((rank for rank in ranks if rank.phase != ENDED), key=lambda rank: rank.name)
    phases = {rank.phase for rank in every}
    allowed = {
        phase: limits.seconds(phase, max(rank.longest_pause(phase) for rank in every)) for phase in phases
    }
    if not every or any(rank.has_moved(now, within_seconds=allowed[rank.phase]) for rank in every):
        return None
    seconds, step = int(now - max(rank.moved_at for rank in every)), max(rank.step for rank in every)
    silent = [rank for rank in every if now - rank.reported_at >= silent_seconds]
    has_reports = len(silent) < len(every)
    odd, why = _odd(every, silent)
    why += _where(odd or every)
    places = tuple(rank.place for rank in odd)
    if not step and has_reports and never_reported:
        # Who has taken part in steps may be any number of pods; before the first, all are needed.
        places, why = (
            tuple(never_reported),
            f"{_named(never_reported)} {_verb(never_reported, 'has', 'have')} not started training",
        )
    what = f"{NO_STEP}{duration(seconds)} (step {step})"
    if not has_reports:
        what = f"{NO_REPORT}{duration(seconds)} (last one at step {step})"
    first = set(places)
    known = sorted(every, key=lambda rank: rank.place not in first)
    return Hang(
        attempt,
        step,
        seconds,
        places,
        f"{what}: {why.removeprefix('; ')}" if why else what,
        has_reports=has_reports,
        is_learned=all(rank.knows_pauses(now, after_seconds=limits.ceiling_seconds) for rank in every),
        stacks=tuple(
            (rank.name, rank.position.dump) for rank in known if rank.position and rank.position.dump
        ),
    )


def restored_hang(status: PaddleJobStatus) -> Hang | None:
    """Return the hang that the status of a job records, for an operator that has not seen the job move."""
    found = next((each for each in status.conditions if each.type == Reason.HUNG), None)
    if status.phase is not Phase.RUNNING or found is None or found.status != "True":
        return None
    step = status.progress.step if status.progress else 0
    return Hang(status.attempt, step, 0, (), found.message, is_learned=False)


def find_awaited(ranks: Iterable[RankPace], now: float, *, silent_seconds: float) -> str | None:
    """Say which ranks all others wait for; empty if that cannot be told, None while any rank moves.

    Paddle ends a rank that has waited for too long by itself, with gloo after 30 seconds, when nobody can
    know yet whether the job hangs. Then this tells whom it waited for.
    """
    every = sorted((rank for rank in ranks if rank.phase != ENDED), key=lambda rank: rank.name)
    if any(rank.has_moved(now, within_seconds=silent_seconds) for rank in every):
        return None
    odd, why = _odd(every, [rank for rank in every if now - rank.reported_at >= silent_seconds])
    return why if odd and all(rank.is_waiting for rank in every if rank not in odd) else ""


def _odd(every: list[RankPace], silent: list[RankPace]) -> tuple[list[RankPace], str]:
    """Return the ranks that differ from all others, and how."""
    if every and len(silent) == len(every):
        who = every[0].place if len(every) == 1 else f"all {len(every)} ranks"
        return [], f"{who} {_verb(every, 'is', 'are')} stopped or cannot reach the operator"
    if len(every) <= 1:
        return [], ""
    furthest, busy = max(rank.step for rank in every), [rank for rank in every if not rank.is_waiting]
    for found, one, many, how in (
        (silent, "is", "are", "not reporting"),
        (busy, "does", "do", "not join what the others wait for"),
        ([rank for rank in every if rank.step < furthest], "is", "are", "behind"),
        (_elsewhere(every), "is", "are", "at another place than the others"),
    ):
        if 0 < len(found) < len(every):
            return found, f"{_names(found)} {_verb(found, one, many)} {how}"
    return [], f"all {len(every)} ranks are waiting" if not busy else ""


def _elsewhere(ranks: list[RankPace]) -> list[RankPace]:
    """Return those whose stacks are not that of most ranks."""
    first, *others = Counter(rank.position.main for rank in ranks if rank.position).most_common(2) or [(0, 0)]
    if not others or others[0][1] == first[1]:
        return []
    return [rank for rank in ranks if rank.position and rank.position.main != first[0]]


def _where(ranks: list[RankPace]) -> str:
    """Say in which function ranks are, if they are in the same, or are few."""
    places = [rank.position.place if rank.position else "" for rank in ranks]
    if not all(places):
        return ""
    if len(set(places)) == 1:
        return f"; {_verb(ranks, 'it is', 'they are')} in {places[0]}"
    each = (f"{rank.name} is in {place}" for rank, place in zip(ranks, places, strict=True))
    return f"; {', '.join(each)}" if len(ranks) <= NAMED_RANKS else ""


def _names(ranks: list[RankPace]) -> str:
    return _named([rank.place for rank in ranks])


def _named(places: Sequence[str]) -> str:
    named, more = ", ".join(places[:NAMED_RANKS]), len(places) - NAMED_RANKS
    return f"{named} and {more} more" if more > 0 else named


def _verb(some: Sequence[object], one: str, many: str) -> str:
    return one if len(some) == 1 else many


def hung(job: Observed) -> NewAttempt | None:
    """Find a hang that restarts the job: one that is certain, with restarts left."""
    hang, spec = job.given.hang, job.job.spec
    if (
        hang is None
        or not hang.has_reports
        or not hang.is_learned
        or spec.hang_policy != HangPolicy.RESTART
        or not backoff.has_restarts_left(job.job)
    ):
        return None
    pod = hang.odd[0].partition(" ")[0] if hang.odd else ""
    failure = Failure(job.status.attempt, pod, Reason.HUNG, message=hang.message, time=job.now)
    return NewAttempt(Phase.RESTARTING, Reason.HUNG, hang.message, failure=failure)
