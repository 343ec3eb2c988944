"""What the ranks of jobs reported last; bounded and without a clock of its own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.core.recording import stacks
from paddlejob.core.recording.hangs import ENDED, RankPace, known_phase
from paddlejob.core.recording.stragglers import StepTimer
from paddlejob.operator.reports import pace
from paddlejob.operator.reports.pace import LONGEST_SECONDS, SHORTEST_SECONDS, Bucket
from paddlejob.progress import Tracker

MOST_RANKS = 64
"""Maximum number of ranks in one pod: one for each of its accelerators, so this is plenty."""
POD_REPORTS_PER_SECOND = 2.0 * MOST_RANKS / SHORTEST_SECONDS
MOST_STACK_TEXT = 1 << 18
"""Maximum size of the stacks of a job; as much as its record may have."""
SILENT_SECONDS = 2 * LONGEST_SECONDS
"""A rank that does not report for this long while the others make steps is not one that they wait for."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]
"""Less than 32 years."""


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """The state of a rank as its recorder sends it; unknown fields are ignored."""

    rank: Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)] = 0
    phase: str = ""
    step: Count = 0
    total: Count | None = None
    epoch: Count | None = None
    loss: float | Literal["nan", "inf", "-inf"] | None = None
    """A number, or a word for a value that JSON does not have."""
    own_seconds: Seconds = 0.0
    waiting_seconds: Seconds = 0.0
    waiting: bool = False
    ended: bool = False
    saved_step: Count | None = None
    resumed: bool = False
    counted: bool = False
    stacks: Annotated[str, msgspec.Meta(max_length=1 << 15)] = ""


_DECODER = msgspec.json.Decoder(Report)


def read_report(body: bytes, *, pods: int) -> Report:
    """Return a report with values that can be stored, shown and used as keys: the sender has chosen them.

    `pods` is the number of pods of the job. Raises one of DECODE_ERRORS.
    """
    report = _DECODER.decode(body)
    if report.rank >= pods * MOST_RANKS:
        raise ValueError(f"rank {report.rank}: must be below {pods * MOST_RANKS}")
    return msgspec.structs.replace(report, phase=known_phase(report.phase))


class Rank:
    """What one process has reported since it began."""

    def __init__(self, pod_uid: str, pace: RankPace) -> None:
        self.pod_uid = pod_uid
        self.pace = pace
        self.timer = StepTimer()
        self.tracker = Tracker()
        self.last = Report()
        self.at = -math.inf
        self.steps_per_second: float | None = None
        self.has_restarted = False
        """Whether the last report was the first of another process than the one before."""

    def take(self, report: Report, now: float) -> None:
        """Note a report; the speed is that since the one before."""
        steps, seconds = report.step - self.last.step, now - self.at
        self.has_restarted = steps < 0
        if self.has_restarted:
            # What was measured is of a process that is gone.
            self.tracker = Tracker()
        if seconds > 0:
            self.steps_per_second = steps / seconds if steps > 0 and math.isfinite(seconds) else None
        self.last, self.at = report, now
        # What a program does after its last step takes as long as it takes.
        is_done = report.ended or (report.total is not None and report.step >= report.total)
        phase = ENDED if is_done else report.phase
        self.pace.add_report(report.step, phase, is_waiting=report.waiting, now=now)
        self.timer.add_report(report.step, report.own_seconds, report.waiting_seconds)


def _kept(position: stacks.Position, ranks: Iterable[Rank]) -> stacks.Position:
    """Return a position without its text where the ranks of the job have said enough already."""
    text = sum(len(rank.pace.position.dump) for rank in ranks if rank.pace.position)
    return position if text + len(position.dump) <= MOST_STACK_TEXT else position._replace(dump="")


class Book:
    """The ranks of all jobs."""

    def __init__(self) -> None:
        self._jobs: dict[ObjectKey, dict[tuple[str, int], Rank]] = {}
        self._leaders: dict[ObjectKey, int] = {}
        self._budgets: dict[str, Bucket] = {}
        self._reporters: Counter[str] = Counter()
        """How many ranks report, by namespace."""
        self.since: datetime | None = None
        """When this operator began to receive reports, by the API server's clock."""

    @property
    def reporters(self) -> int:
        """How many ranks report."""
        return self._reporters.total()

    def next_seconds(self, namespace: str) -> float:
        """Return the time to the next report of each rank of a namespace."""
        share = pace.namespace_share(self._reporters.values())
        return pace.next_seconds(self._reporters[namespace], share)

    def may_report(self, pod_uid: str, now: float) -> bool:
        """Tell whether a pod keeps to the pace, all of its ranks together and with plenty to spare."""
        return self._budgets.setdefault(pod_uid, Bucket(POD_REPORTS_PER_SECOND, 2.0 * MOST_RANKS)).take(now)

    def take(self, job: ObjectKey, pod: Pod, report: Report, now: float) -> Rank:
        """Note a report and return its rank.

        Raises ValueError for a pod that reports for more ranks than it can have.
        """
        ranks, name = self._jobs.setdefault(job, {}), pod.metadata.name
        rank = ranks.get((name, report.rank))
        if rank is None and sum(other == name for other, _ in ranks) >= MOST_RANKS:
            raise ValueError(f"more than {MOST_RANKS} ranks in one pod")
        if rank is None:
            self._reporters[job.namespace] += 1
            self._leaders[job] = min(report.rank, self._leaders.get(job, report.rank))
        if rank is None or rank.pod_uid != pod.metadata.uid:
            name_of_rank = f"{name} (rank {report.rank})"
            place = RankPace(name_of_rank, pod.spec.node_name, now, is_new=self._is_new(pod))
            rank = ranks[(name, report.rank)] = Rank(pod.metadata.uid, place)
        # What is kept of each report is not to be what is long.
        rank.take(msgspec.structs.replace(report, stacks=""), now)
        if report.stacks:
            rank.pace.position = _kept(stacks.position(report.stacks), ranks.values())
        return rank

    def _is_new(self, pod: Pod) -> bool:
        created = pod.metadata.creation_timestamp
        return self.since is None or (created is not None and created >= self.since)

    def jobs(self) -> list[ObjectKey]:
        """Return the jobs whose ranks report."""
        return list(self._jobs)

    def ranks(self, job: ObjectKey, pod_uids: AbstractSet[str]) -> list[Rank]:
        """Return the ranks of a job that are in pods which still exist."""
        return [rank for rank in self._jobs.get(job, {}).values() if rank.pod_uid in pod_uids]

    def leader(self, job: ObjectKey) -> int:
        """Return the rank whose progress is the job's: the first that reports."""
        return self._leaders[job]

    def prune(self, pods_of: Callable[[ObjectKey], AbstractSet[str]], now: float) -> None:
        """Forget ranks whose pods are gone, and those that are silent while the others go on.

        One that stopped when all others did is what they wait for, and is kept for as long as its pod.
        """
        for job, ranks in list(self._jobs.items()):
            pod_uids, moved_at = pods_of(job), max(rank.pace.moved_at for rank in ranks.values())
            for place, rank in list(ranks.items()):
                if rank.pod_uid not in pod_uids or rank.at < moved_at - SILENT_SECONDS:
                    del ranks[place]
            if not ranks:
                del self._jobs[job]
        alive = {rank.pod_uid for ranks in self._jobs.values() for rank in ranks.values()}
        self._budgets = {uid: budget for uid, budget in self._budgets.items() if uid in alive}
        self._leaders = {job: min(rank for _, rank in ranks) for job, ranks in self._jobs.items()}
        self._reporters = Counter(
            job.namespace
            for job, ranks in self._jobs.items()
            for rank in ranks.values()
            if rank.at >= now - SILENT_SECONDS
        )
