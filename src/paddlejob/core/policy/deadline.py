"""Time limits: how long a job may take to start, how long it may run, how long it is kept when finished."""

from __future__ import annotations

from datetime import datetime

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.status_change import change_status
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase
from paddlejob.core.actions import soonest
from paddlejob.core.messages import PhaseReason, Verdict
from paddlejob.core.observed import Observed


class Clock(msgspec.Struct, frozen=True):
    """A limit that has passed, or the time until it does."""

    verdict: PhaseReason | None = None
    seconds_left: float | None = None


def deadline_verdict(job: Observed) -> Verdict | None:
    """Return the verdict if a job has passed one of its limits."""
    startup, active = _startup_clock(job.trusted, job.now), _active_clock(job.trusted, job.now)
    phase_reason = startup.verdict or active.verdict
    return Verdict(phase_reason) if phase_reason else None


def seconds_left(job: PaddleJob, now: datetime) -> float | None:
    """Return the time until the job passes the first of its limits."""
    return soonest(_startup_clock(job, now).seconds_left, _active_clock(job, now).seconds_left)


def _startup_clock(job: PaddleJob, now: datetime) -> Clock:
    """Check that all pods run in time, measured from creation or from the last resumption."""
    limit, created = job.spec.startup_deadline_seconds, job.metadata.creation_timestamp
    if limit is None or created is None or job.status.start_time is not None:
        return Clock()
    if job.status.phase is Phase.SUSPENDED:
        return Clock(seconds_left=limit)
    left = limit - (now - max(created, job.status.resume_time or created)).total_seconds()
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
    left = limit - active_seconds(job.status, now)
    if left > 0:
        return Clock(seconds_left=left)
    message = f"ran longer than activeDeadlineSeconds {limit}"
    return Clock(PhaseReason(Phase.FAILED, Reason.DEADLINE_EXCEEDED, message))


def active_seconds(status: PaddleJobStatus, now: datetime) -> float:
    """Return how long a job has run, without the time in suspension or without quota."""
    since = status.active_since
    return status.active_seconds + ((now - since).total_seconds() if since else 0)


def stop_clock(status: PaddleJobStatus, now: datetime) -> PaddleJobStatus:
    """Stop the clock of the active deadline until the job has pods again."""
    return change_status(status, active_since=None, active_seconds=int(active_seconds(status, now)))


def seconds_to_live(job: PaddleJob, now: datetime) -> float | None:
    """Return the time until a finished job is deleted, None if it is kept."""
    limit, ended = job.spec.ttl_seconds_after_finished, job.status.completion_time
    if limit is None or ended is None:
        return None
    return limit - (now - ended).total_seconds()
