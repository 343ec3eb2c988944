"""Finds jobs that have stopped making progress, and the rank that the others wait for.

Timeouts are learned from the job itself, separately for each phase: several times the longest pause between
two steps so far. An operator that starts later than the job has not seen its pauses. It reports a hang, but
restarts the job only after the longest timeout. The caller passes the time of a monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import PaddleJobStatus, Phase
from paddlejob.text import duration
from paddlejob.training.findings import Hang
from paddlejob.training.stacks import Position

STARTING, TRAINING, EVALUATING, SAVING = "starting", "training", "evaluating", "saving"
OTHER, ENDED = "other", "ended"
_REPORTED_PHASES = frozenset({"", STARTING, TRAINING, EVALUATING, SAVING})
PATIENCE = 5.0
"""A pause is too long if it is this many times the longest pause so far."""
OTHER_PHASES = 6
"""Factor of the floor for evaluations and checkpoints, which are rare and take long."""
NAMED_RANKS = 3
NO_STEP, NO_REPORT = "no step for ", "no report for "


def known_phase(reported: str) -> str:
    """Return the reported phase, or `other` for a name that the recorder does not use.

    Pauses are learned for each phase, so the number of phases must be bounded.
    """
    return reported if reported in _REPORTED_PHASES else OTHER


class HangLimits(msgspec.Struct, frozen=True):
    """Bounds of the learned timeouts."""

    floor_seconds: float = 600.0
    ceiling_seconds: float = 7200.0

    def seconds(self, phase: str, longest_pause: float) -> float:
        """Return how long a rank may stay in a phase without a step."""
        floor = self.floor_seconds * (1 if phase == TRAINING else OTHER_PHASES)
        return max(floor, min(self.ceiling_seconds, PATIENCE * longest_pause))


class RankPace:
    """The progress of one process."""

    def __init__(self, name: str, node: str, now: float, *, is_new: bool = True) -> None:
        self.name = name
        """Such as worker-1."""
        self.node = node
        self.step = 0
        self.phase = ""
        self.is_waiting = False
        """Whether it is in a call in which ranks wait for each other."""
        self.position: Position | None = None
        """Position in the code, if it was asked for."""
        self.is_new = is_new
        """Whether its pod is younger than this operator, so that the operator has seen every pause."""
        self.since = now
        self.reported_at = now
        self.moved_at = now
        self._longest: dict[str, float] = {}
        """The longest pause between two moves, by phase."""

    @property
    def place(self) -> str:
        """Name and node."""
        return f"{self.name} on {self.node}" if self.node else self.name

    def add_report(self, step: int, phase: str, *, is_waiting: bool, now: float) -> None:
        """Add a report. A step or a change of phase is a move; a smaller step comes from a new process."""
        if step != self.step or phase != self.phase:
            if self.phase and step >= self.step:
                pause = now - self.moved_at
                self._longest[self.phase] = max(pause, self._longest.get(self.phase, 0.0))
            self.moved_at = now
            self.position = None
        self.step, self.phase, self.is_waiting, self.reported_at = step, phase, is_waiting, now

    def has_moved(self, now: float, *, within_seconds: float) -> bool:
        """Return whether it may be making progress: some steps are counted by Paddle only."""
        counts_steps = self.step > 0 or self.phase != TRAINING
        return now - self.moved_at < within_seconds or not counts_steps

    def knows_pauses(self, now: float, *, after_seconds: float) -> bool:
        """Return whether every pause was seen, or the rank was watched long enough."""
        return self.is_new or now - self.since >= after_seconds

    def longest_pause(self, phase: str) -> float:
        return self._longest.get(phase, 0.0)


def find_hang(
    ranks: Iterable[RankPace],
    now: float,
    *,
    attempt: int,
    silent_seconds: float,
    limits: HangLimits,
    never_reported: Sequence[str] = (),
) -> Hang | None:
    """Return a hang if no rank makes progress.

    A rank counts as unreachable after `silent_seconds` without a report. `never_reported` are the pods that
    have not reported at all.
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
    odd, why = _odd_ranks(every, silent)
    why += _where(odd or every)
    places = tuple(rank.place for rank in odd)
    if not step and has_reports and never_reported:
        # Any number of pods may take part in a step, but the first step needs all of them.
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
    """Return the hang recorded in a status, for an operator that has not seen the job move."""
    found = next((each for each in status.conditions if each.type == Reason.HUNG), None)
    if status.phase is not Phase.RUNNING or found is None or found.status != "True":
        return None
    step = status.progress.step if status.progress else 0
    return Hang(status.attempt, step, 0, (), found.message, is_learned=False)


def find_awaited(ranks: Iterable[RankPace], now: float, *, silent_seconds: float) -> str | None:
    """Describe the ranks that all others wait for; empty if unknown, None while any rank moves.

    Paddle ends a rank that has waited too long, with gloo after 30 seconds. That is too early to call it a
    hang, but this explains why the rank ended.
    """
    every = sorted((rank for rank in ranks if rank.phase != ENDED), key=lambda rank: rank.name)
    if any(rank.has_moved(now, within_seconds=silent_seconds) for rank in every):
        return None
    odd, why = _odd_ranks(every, [rank for rank in every if now - rank.reported_at >= silent_seconds])
    return why if odd and all(rank.is_waiting for rank in every if rank not in odd) else ""


def _odd_ranks(every: list[RankPace], silent: list[RankPace]) -> tuple[list[RankPace], str]:
    """Return the ranks that differ from all others, and the difference in words."""
    if every and len(silent) == len(every):
        who = every[0].place if len(every) == 1 else f"all {len(every)} ranks"
        return [], f"{who} {_verb(every, 'is', 'are')} stopped or cannot reach the operator"
    if len(every) <= 1:
        return [], ""
    furthest, busy = max(rank.step for rank in every), [rank for rank in every if not rank.is_waiting]
    for found, one, many, how in (
        (silent, "is", "are", "not reporting"),
        (busy, "does", "do", "not join the call that the others wait in"),
        ([rank for rank in every if rank.step < furthest], "is", "are", "behind"),
        (_other_positions(every), "is", "are", "at a different place than the others"),
    ):
        if 0 < len(found) < len(every):
            return found, f"{_names(found)} {_verb(found, one, many)} {how}"
    return [], f"all {len(every)} ranks are waiting" if not busy else ""


def _other_positions(ranks: list[RankPace]) -> list[RankPace]:
    """Return the ranks whose stack differs from the most common one."""
    first, *others = Counter(rank.position.main for rank in ranks if rank.position).most_common(2) or [(0, 0)]
    if not others or others[0][1] == first[1]:
        return []
    return [rank for rank in ranks if rank.position and rank.position.main != first[0]]


def _where(ranks: list[RankPace]) -> str:
    """Name the function that the ranks are in, if it is the same one or the ranks are few."""
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
