"""Where the time of a job went. Counted when its phase or attempt changes, which is written anyway."""

from __future__ import annotations

from datetime import datetime

import msgspec

from paddlejob.api.v1 import Goodput, PaddleJob, PaddleJobStatus, Phase, TrainingProgress
from paddlejob.core.attempts.advance import has_advanced

_PARTS = {
    Phase.STARTING: "starting_seconds",
    Phase.RESTARTING: "starting_seconds",
    Phase.SCALING: "starting_seconds",
    Phase.SUSPENDED: "suspended_seconds",
}


def with_goodput(job: PaddleJob, new: PaddleJobStatus, now: datetime) -> PaddleJobStatus:
    """Return a new status with the time up to now, or to its end, where the phase or attempt changes."""
    old = job.status
    if old.phase.is_terminal or (old.phase, old.attempt) == (new.phase, new.attempt):
        return new
    return msgspec.structs.replace(new, goodput=goodput_at(job, new.completion_time or now))


def goodput_at(job: PaddleJob, until: datetime) -> Goodput | None:
    """Return the times of a job up to a moment; they sum to the time from its creation to then."""
    status, created = job.status, job.metadata.creation_timestamp
    if created is None:
        return None
    known = status.goodput or Goodput(updated=created)
    since = known.updated or created
    seconds = max(0, int((until - since).total_seconds()))
    part = _part(status)
    return msgspec.structs.replace(known, updated=max(since, until), **{part: getattr(known, part) + seconds})


def gets_ahead(status: PaddleJobStatus, told: TrainingProgress) -> bool:
    """Return whether progress is the first of an attempt beyond what attempts before it have reached."""
    if status.phase is not Phase.RUNNING or not _repeats(status):
        return False
    return has_advanced(msgspec.structs.replace(status, progress=told))


def _part(status: PaddleJobStatus) -> str:
    if status.phase is not Phase.RUNNING:
        return _PARTS.get(status.phase, "queued_seconds")
    return "repeating_seconds" if _repeats(status) else "training_seconds"


def _repeats(status: PaddleJobStatus) -> bool:
    return status.progress_mark is not None and not has_advanced(status)
