"""What is known of a job and not yet in its record."""

from __future__ import annotations

from datetime import datetime

import msgspec

from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase
from paddlejob.history import compose
from paddlejob.history.environment import changes
from paddlejob.history.record import (
    MAX_PHASES,
    MAX_POINTS,
    AttemptRecord,
    PhaseEntry,
    Point,
    Record,
    Summary,
    thinned,
)


class Track:
    """What is known of a job since its record was last written."""

    def __init__(self, job: PaddleJob, recorded: int, clock: float) -> None:
        self.job = job
        self.recorded = recorded
        """Attempts before this one are in the record, or in `attempts`."""
        self.deleted_at: datetime | None = None
        self.ended_clock: float | None = None
        """When the job ended, by the monotonic clock."""
        self.attempts: list[tuple[AttemptRecord, dict[str, str]]] = []
        """Attempts that have ended, each with its environment."""
        self.timeline: list[PhaseEntry] = []
        self.curve: list[Point] = []
        self.sampled = 0
        """Time of the newest point that was taken, written or not."""
        self.environment: dict[str, str] = {}
        """That of the present attempt, as it was when the job began to run."""
        self.saved_at = clock
        """When the record was last written, by the monotonic clock."""
        self.tries = 0
        self.reads_logs = False
        """Whether the end of an attempt is about to be added."""

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended or was deleted."""
        return self.ended_clock is not None

    @property
    def summary(self) -> Summary:
        """The first lines of the record."""
        return compose.summary_of(self.job, deleted_at=self.deleted_at)

    @property
    def waiting_bytes(self) -> int:
        """How much text waits to be written."""
        return sum(len(rank.text) for attempt, _ in self.attempts for rank in attempt.ranks)

    def see(self, job: PaddleJob) -> None:
        """Take in the job as it is now."""
        # The record of a deleted job says what it was doing before.
        if job.status.phase is not Phase.TERMINATING:
            self.job = job

    def enter(self, status: PaddleJobStatus, now: datetime) -> None:
        """Add a phase."""
        self.timeline.append(compose.phase_entry(status, now))
        del self.timeline[1:-MAX_PHASES]

    def sample(self, status: PaddleJobStatus) -> None:
        """Add a point to the curve, if there is a newer one."""
        point = compose.point_of(status)
        if point is not None and self.sampled < point.time:
            self.sampled = point.time
            self.curve = list(thinned((*self.curve, point), MAX_POINTS))

    def end_attempt(self, ended: AttemptRecord, environment: dict[str, str] | None = None) -> None:
        """Add an attempt that has ended."""
        self.attempts.append((ended, environment or {}))
        self.environment = {}

    def note_hang(self, found: AttemptRecord) -> None:
        """Add where the ranks of the present attempt are; the record of its end replaces it."""
        self.attempts.append((found, {}))

    def merged_into(self, kept: Record | None) -> Record:
        """Return the record with what is new."""
        before = kept or Record(self.summary)
        attempts, environment = {each.attempt: each for each in before.attempts}, before.environment
        for ended, own in self.attempts:
            known = attempts.get(ended.attempt)
            if known is None or known.result == Phase.RUNNING:
                changed = changes(environment, own) if environment and own else ()
                ranks = ended.ranks or (known.ranks if known else ())
                attempts[ended.attempt] = msgspec.structs.replace(ended, changes=changed, ranks=ranks)
                environment = own or environment
        # Some of it may be there already: the response to an earlier write was lost.
        entries = (each for each in self.timeline if each not in before.timeline)
        last = before.curve[-1].time if before.curve else 0
        return msgspec.structs.replace(
            before,
            summary=self.summary,
            attempts=tuple(attempts.values()),
            timeline=(*before.timeline, *entries),
            curve=(*before.curve, *(each for each in self.curve if each.time > last)),
            environment=environment,
        )
