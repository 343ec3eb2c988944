"""Time limits: how long a job may take to start, how long it may run, how long it is kept when finished."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.core.messages import PhaseReason, Verdict

if TYPE_CHECKING:
    from paddlejob.core.observed import Observed


class Clock(msgspec.Struct, frozen=True):
    """A limit that is passed, or when it will be."""

    verdict: PhaseReason | None = None
    seconds_left: float | None = None


def deadline_exceeded(job: Observed) -> Verdict | None:
    """Find that a job has passed one of its limits."""
    phase_reason = _startup_clock(job.job, job.now).verdict or _active_clock(job.job, job.now).verdict
    return Verdict(phase_reason) if phase_reason else None


def seconds_left(job: PaddleJob, now: datetime) -> float | None:
    """Return the time until the job passes the first of its limits."""
    clocks = (_startup_clock(job, now), _active_clock(job, now))
    return min((clock.seconds_left for clock in clocks if clock.seconds_left is not None), default=None)


def _startup_clock(job: PaddleJob, now: datetime) -> Clock:
    """Check that the job's pods all run in time, counted from creation or from its last resumption."""
    limit, created = job.spec.startup_deadline_seconds, job.metadata.creation_timestamp
    if limit is None or created is None or job.status.start_time is not None:
        return Clock()
    if job.status.phase is Phase.SUSPENDED:
        return Clock(seconds_left=limit)
    # Before there was a resumeTime, resuming a job set attemptTime.
    resumed = job.status.resume_time or (None if job.status.consecutive_restarts else job.status.attempt_time)
    left = limit - (now - max(created, resumed or created)).total_seconds()
    if left > 0:
        return Clock(seconds_left=left)
    waited_for = f": {job.status.message}" if job.status.message else ""
    message = f"not all pods ran within startupDeadlineSeconds {limit}{waited_for}"
    return Clock(PhaseReason(Phase.FAILED, Reason.STARTUP_DEADLINE_EXCEEDED, message))


def _active_clock(job: PaddleJob, now: datetime) -> Clock:
    """Check that the job does not run too long; time in suspension or without quota does not count."""
    limit = job.spec.active_deadline_seconds
    if limit is None or job.status.active_since is None:
        return Clock()
    left = limit - active_seconds(job, now)
    if left > 0:
        return Clock(seconds_left=left)
    message = f"ran longer than activeDeadlineSeconds {limit}"
    return Clock(PhaseReason(Phase.FAILED, Reason.DEADLINE_EXCEEDED, message))


def active_seconds(job: PaddleJob, now: datetime) -> float:
    """Return how long the job has run, without the time in suspension or without quota."""
    since = job.status.active_since
    return job.status.active_seconds + ((now - since).total_seconds() if since else 0)


def stopped_clock(job: PaddleJob, now: datetime) -> dict[str, object]:
    """Return the changes of a status that stop the clock until the job has pods again."""
    return {"active_since": None, "active_seconds": int(active_seconds(job, now))}


def seconds_to_live(job: PaddleJob, now: datetime) -> float | None:
    """Return how long a finished job still stays, None forever."""
    limit, ended = job.spec.ttl_seconds_after_finished, job.status.completion_time
    if limit is None or ended is None:
        return None
    return limit - (now - ended).total_seconds()
