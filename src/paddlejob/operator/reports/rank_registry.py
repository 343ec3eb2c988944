"""The latest reports of all ranks. Bounded; the caller passes the time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime

import msgspec

from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.training import report_rate, stacks
from paddlejob.training.hangs import ENDED, RankPace
from paddlejob.training.log_lines import Tracker
from paddlejob.training.report_rate import MAX_SECONDS, MIN_SECONDS, Bucket
from paddlejob.training.reports import MAX_RANKS, Report
from paddlejob.training.stragglers import StepTimer

POD_REPORTS_PER_SECOND = 2.0 * MAX_RANKS / MIN_SECONDS
MAX_STACK_TEXT = 1 << 18
"""Maximum size of the stacks of a job, the same as in its record."""
SILENT_SECONDS = 2 * MAX_SECONDS
"""A rank silent for this long while others progress is not what they are waiting for."""


class Rank:
    """The reports of one process since it started."""

    def __init__(self, pod_uid: str, attempt: int, pace: RankPace) -> None:
        self.pod_uid = pod_uid
        self.attempt = attempt
        self.pace = pace
        self.timer = StepTimer()
        self.tracker = Tracker()
        self.last = Report()
        self.at = -math.inf
        self.steps_per_second: float | None = None
        self.has_restarted = False
        """Whether the last report was the first one of a new process."""

    def add_report(self, report: Report, now: float) -> None:
        """Add a report and compute the speed since the previous one."""
        steps, seconds = report.step - self.last.step, now - self.at
        self.has_restarted = steps < 0
        if self.has_restarted:
            # The measurements belong to the previous process.
            self.tracker = Tracker()
        if seconds > 0:
            self.steps_per_second = steps / seconds if steps > 0 and math.isfinite(seconds) else None
        self.last, self.at = report, now
        # After its last step, a program may take any time.
        is_done = report.ended or (report.total is not None and report.step >= report.total)
        phase = ENDED if is_done else report.phase
        self.pace.add_report(report.step, phase, is_waiting=report.waiting, now=now)
        self.timer.add_report(report.step, report.own_seconds, report.waiting_seconds, report.stage)


def _limit_text(position: stacks.Position, ranks: Iterable[Rank]) -> stacks.Position:
    """Return a position, without its stack text if the job's ranks have reached MAX_STACK_TEXT."""
    text = sum(len(rank.pace.position.dump) for rank in ranks if rank.pace.position)
    return position if text + len(position.dump) <= MAX_STACK_TEXT else position._replace(dump="")


class RankRegistry:
    """The ranks of all jobs."""

    def __init__(self) -> None:
        self._jobs: dict[ObjectKey, dict[tuple[str, int], Rank]] = {}
        self._leaders: dict[ObjectKey, int] = {}
        self._budgets: dict[str, Bucket] = {}
        self._reporters: Counter[str] = Counter()
        """Number of reporting ranks, by namespace."""
        self.since: datetime | None = None
        """When this operator started to receive reports, by the API server's clock."""

    @property
    def reporters(self) -> int:
        """Number of reporting ranks."""
        return self._reporters.total()

    def next_seconds(self, namespace: str) -> float:
        """Return the interval between two reports of a rank in a namespace."""
        share = report_rate.namespace_share(self._reporters.values())
        return report_rate.next_seconds(self._reporters[namespace], share)

    def may_report(self, pod_uid: str, now: float) -> bool:
        """Return whether a pod, with all of its ranks, is within its rate limit."""
        return self._budgets.setdefault(pod_uid, Bucket(POD_REPORTS_PER_SECOND, 2.0 * MAX_RANKS)).take(now)

    def add_report(self, job: ObjectKey, pod: Pod, report: Report, now: float, *, attempt: int = 0) -> Rank:
        """Add a report of a process of an attempt and return its rank.

        Raises ValueError if a pod reports more than MAX_RANKS ranks.
        """
        ranks, name = self._jobs.setdefault(job, {}), pod.metadata.name
        rank = ranks.get((name, report.rank))
        if rank is None and sum(other == name for other, _ in ranks) >= MAX_RANKS:
            raise ValueError(f"more than {MAX_RANKS} ranks in one pod")
        if rank is None:
            self._reporters[job.namespace] += 1
            self._leaders[job] = min(report.rank, self._leaders.get(job, report.rank))
        if rank is None or (rank.pod_uid, rank.attempt) != (pod.metadata.uid, attempt):
            name_of_rank = f"{name} (rank {report.rank})"
            was_known = rank is not None and rank.pod_uid == pod.metadata.uid
            place = RankPace(name_of_rank, pod.spec.node_name, now, is_new=was_known or self._is_new(pod))
            rank = ranks[(name, report.rank)] = Rank(pod.metadata.uid, attempt, place)
        # Stacks are long; they are kept separately.
        rank.add_report(msgspec.structs.replace(report, stacks=""), now)
        if report.stacks:
            rank.pace.position = _limit_text(stacks.parse_position(report.stacks), ranks.values())
        return rank

    def _is_new(self, pod: Pod) -> bool:
        created = pod.metadata.creation_timestamp
        return self.since is None or (created is not None and created >= self.since)

    def jobs(self) -> list[ObjectKey]:
        """Return the jobs with reporting ranks."""
        return list(self._jobs)

    def ranks(self, job: ObjectKey, pod_uids: AbstractSet[str], first_attempt: int = 0) -> list[Rank]:
        """Return the ranks of a job in these pods, without processes of earlier attempts."""
        known = self._jobs.get(job, {}).values()
        return [rank for rank in known if rank.pod_uid in pod_uids and rank.attempt >= first_attempt]

    def leader(self, job: ObjectKey) -> int:
        """Return the rank that represents the job's progress: the lowest one that reports."""
        return self._leaders[job]

    def prune(self, pods_of: Callable[[ObjectKey], AbstractSet[str]], now: float) -> None:
        """Forget ranks of deleted pods, and ranks that are silent while others progress.

        A rank that stopped together with the others may be the one they wait for, and is kept with its pod.
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
