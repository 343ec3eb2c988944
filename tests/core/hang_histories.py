"""Simulated histories of jobs: healthy ones raise no alarm, and what stops or slows them down then does.

Operators restart in the middle of them. An operator that has not seen the pauses of a healthy job is never
certain that the job hangs.

python tests/core/hang_histories.py 10000
"""

from __future__ import annotations

import random
import sys

from paddlejob.training.hangs import HangLimits, RankPace, find_hang
from paddlejob.training.stragglers import WINDOW_STEPS, StepTimer, find_stragglers

LIMITS = HangLimits(floor_seconds=300, ceiling_seconds=7200)
SILENT = 60.0
JITTER = 0.3
EVERY = 5.0
"""How often a rank reports."""


class Play:
    """Ranks of a job that report, on a clock of their own."""

    def __init__(self, ranks: int = 3) -> None:
        self.now = 1000.0
        self.ranks = [RankPace(f"worker-{index}", f"node-{index}", self.now) for index in range(ranks)]

    def report(self, step: int, phase: str = "training", *, waiting=(), silent=()) -> None:
        for index, rank in enumerate(self.ranks):
            if index not in silent:
                rank.add_report(step, phase, is_waiting=index in waiting, now=self.now)

    def train(self, steps: int, *, each_seconds: float = 1.0, first: int = 1) -> None:
        for step in range(first, first + steps):
            self.now += each_seconds
            self.report(step)

    def stay(self, seconds: float, step: int, phase: str = "training", **how) -> None:
        """Let the ranks go on reporting and not move."""
        end = self.now + seconds
        while self.now < end:
            self.now += min(EVERY, end - self.now)
            self.report(step, phase, **how)

    def hang(self, never_reported=()):
        return find_hang(
            self.ranks,
            self.now,
            attempt=0,
            silent_seconds=SILENT,
            limits=LIMITS,
            never_reported=never_reported,
        )


class History(Play):
    """A job of any size with steps of any length, evaluations and checkpoints, and reports that are lost."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(ranks=rng.randint(1, 6))
        self.rng = rng
        self.step = 0
        self.seconds = 10 ** rng.uniform(-2, 1.5)
        """How long a step takes."""
        self.pauses = {"evaluating": 10 ** rng.uniform(0, 3), "saving": 10 ** rng.uniform(0, 3)}
        self.by_all = rng.random() < 0.5
        """Whether all ranks evaluate and save, or the first for all of them."""
        self.own = [0.2 * self.seconds * rng.uniform(0.9, 1.1) for _ in self.ranks]
        self.restarts = rng.random() < 0.5
        """Whether operators restart, also while a job evaluates or saves."""
        self.timers = [StepTimer() for _ in self.ranks]
        self.spent = [[0.0, 0.0] for _ in self.ranks]

    def live(self) -> None:
        """Train, evaluate and save; nothing of it is an alarm."""
        for _ in range(self.rng.randint(2, 8)):
            self.make_steps(self.rng.randint(1, 20))
            phase = self.rng.choice(sorted(self.pauses))
            self.pauses[phase] *= self.rng.uniform(0.7, 1.5)
            self.rest(phase, self.pauses[phase])

    def make_steps(self, reports: int) -> None:
        for _ in range(reports):
            steps = max(1, int(EVERY / self.seconds))
            self.step += steps
            self.now += max(EVERY, self.seconds * self.rng.uniform(0.5, 3.0))
            lost = {index for index in range(len(self.ranks)) if self.rng.random() < 0.2}
            self.report(self.step, silent=lost)
            for index, timer in enumerate(self.timers):
                # Each step takes as long as it takes; over many of them that evens out.
                own = steps * self.own[index] * max(0.1, self.rng.gauss(1.0, JITTER / steps**0.5))
                self.spent[index][0] += own
                self.spent[index][1] += steps * self.seconds - own
                if index not in lost:
                    timer.add_report(self.step, *self.spent[index])
            self.check_healthy()
            if self.slow is None:
                assert not self.stragglers()

    slow: int | None = None

    def rest(self, phase: str, seconds: float) -> None:
        """Evaluate or save for so long, together or while the others wait in their next step."""
        end = self.now + seconds
        while self.now < end:
            self.now += min(EVERY * self.rng.randint(1, 4), max(0.1, end - self.now))
            for index, rank in enumerate(self.ranks):
                is_busy = self.by_all or index == 0
                rank.add_report(
                    self.step, phase if is_busy else "training", is_waiting=not is_busy, now=self.now
                )
            self.check_healthy()
            if self.restarts and self.rng.random() < 0.05:
                self.restart_operator()

    def restart_operator(self) -> None:
        """Forget what an operator has learned; its successor is told of the ranks as they are."""
        self.ranks = [RankPace(each.name, each.node, self.now, is_new=False) for each in self.ranks]
        self.has_restarted = True

    has_restarted = False

    def check_healthy(self) -> None:
        found = self.hang()
        assert found is None or (self.has_restarted and not found.is_learned)

    def stragglers(self) -> list[str]:
        if any(timer.last is None for timer in self.timers):
            return []
        timed = zip((rank.name for rank in self.ranks), (timer.last for timer in self.timers), strict=True)
        return [each.name for each in find_stragglers(timed)]


def check(seed: int) -> None:
    """Play one history, slow a rank down at its end, and then stop one."""
    play = History(random.Random(seed))
    play.live()
    if len(play.ranks) > 1:
        play.slow = play.rng.randrange(len(play.ranks))
        play.own[play.slow] += 0.5 * play.seconds
        # Windows of ranks begin at different steps, and the first has steps of before.
        play.make_steps(30 + int(5 * WINDOW_STEPS * play.seconds / EVERY))
        assert play.stragglers() == [f"worker-{play.slow}"], seed
    stopped = play.rng.randrange(len(play.ranks))
    silent = play.rng.random() < 0.5
    play.stay(
        LIMITS.ceiling_seconds + 2 * EVERY,
        play.step,
        silent={stopped} if silent else (),
        waiting=set(range(len(play.ranks))) - {stopped},
    )
    found = play.hang()
    assert found is not None, seed
    assert found.is_learned, seed
    if len(play.ranks) > 1:
        assert found.odd == (f"worker-{stopped} on node-{stopped}",), seed


if __name__ == "__main__":
    count = int(sys.argv[1])
    for seed in range(count):
        check(seed)
    sys.stdout.write(f"{count} histories: no false alarm, every hang and straggler named\n")
