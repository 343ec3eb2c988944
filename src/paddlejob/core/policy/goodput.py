"""How a job spends its time. Counted when its phase or attempt changes, which is written anyway."""

from __future__ import annotations

from datetime import datetime

import msgspec

from paddlejob.api.v1 import Goodput, PaddleJob, PaddleJobStatus, Phase, TrainingProgress
from paddlejob.core.attempts.advance import has_advanced
from paddlejob.core.messages import duration

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
    known = status.goodput or _before_counting(status, created)
    since = known.updated or created
    seconds = max(0, int((until - since).total_seconds()))
    part = _part(status)
    return msgspec.structs.replace(known, updated=max(since, until), **{part: getattr(known, part) + seconds})


def _before_counting(status: PaddleJobStatus, created: datetime) -> Goodput:
    """Return the times of a job that an operator began which did not count them: until it first ran."""
    started = max(created, status.start_time or created)
    return Goodput(queued_seconds=int((started - created).total_seconds()), updated=started)


def in_words(spent: Goodput) -> str:
    """Return the times in one line; empty where there are none."""
    parts = {
        "training": spent.training_seconds,
        "repeating steps": spent.repeating_seconds,
        "starting": spent.starting_seconds,
        "queued": spent.queued_seconds,
        "suspended": spent.suspended_seconds,
    }
    percent = 100 * spent.training_seconds // max(1, sum(parts.values()))
    shares = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts.items() if seconds)
    return f"{shares} ({percent}% training)" if shares else ""


def gets_ahead(status: PaddleJobStatus, progress: TrainingProgress) -> bool:
    """Return whether progress is the first of an attempt beyond what attempts before it have reached."""
    if status.phase is not Phase.RUNNING or not _repeats(status):
        return False
    return has_advanced(msgspec.structs.replace(status, progress=progress))


def _part(status: PaddleJobStatus) -> str:
    if status.phase is not Phase.RUNNING:
        return _PARTS.get(status.phase, "queued_seconds")
    return "repeating_seconds" if _repeats(status) else "training_seconds"


def _repeats(status: PaddleJobStatus) -> bool:
    return status.progress_mark is not None and not has_advanced(status)
