"""How a job spends its time, counted whenever its phase, attempt, admission or hang changes."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.status_change import change_status
from paddlejob.api.v1 import Goodput, PaddleJob, PaddleJobStatus, Phase, TrainingProgress
from paddlejob.text import duration
from paddlejob.training.findings import Hang
from paddlejob.training.steps import has_advanced

_PARTS = {
    Phase.STARTING: "starting_seconds",
    Phase.RESTARTING: "starting_seconds",
    Phase.SCALING: "starting_seconds",
    Phase.SUSPENDED: "suspended_seconds",
}


def add_goodput(
    job: PaddleJob, new: PaddleJobStatus, now: datetime, hang: Hang | None = None
) -> PaddleJobStatus:
    """Return the new status with the time up to now, or to the end of the job, if its activity changed."""
    old, is_stalled = job.status, _is_stalled(job.status)
    is_same = (old.phase, old.attempt, _is_queued(old)) == (new.phase, new.attempt, _is_queued(new))
    stalls = hang is not None and old.phase is Phase.RUNNING
    if old.phase.is_terminal or (is_same and stalls == is_stalled):
        return new
    if hang is not None and stalls and not is_stalled:
        # The hang is found only now, but it began with the last step.
        began = goodput_at(job, now - timedelta(seconds=hang.seconds))
        job = _with_goodput(job, began, stalled=True)
    if not is_same or not stalls:
        job = _with_goodput(job, goodput_at(job, new.completion_time or now), stalled=False)
    return change_status(new, goodput=job.status.goodput)


def _with_goodput(job: PaddleJob, spent: Goodput | None, *, stalled: bool) -> PaddleJob:
    spent = spent and msgspec.structs.replace(spent, stalled=stalled)
    return msgspec.structs.replace(job, status=change_status(job.status, goodput=spent))


def goodput_at(job: PaddleJob, until: datetime) -> Goodput | None:
    """Return the times of a job up to a moment; their sum is the whole seconds since its creation."""
    status, created = job.status, job.metadata.creation_timestamp
    if created is None:
        return None
    known = status.goodput or _before_counting(status, created)
    since = known.updated or created
    seconds, updated = _whole_seconds(since, until)
    part = _current_part(status)
    return msgspec.structs.replace(known, updated=updated, **{part: getattr(known, part) + seconds})


def _before_counting(status: PaddleJobStatus, created: datetime) -> Goodput:
    """Return the times before the first run of a job whose operator did not count them."""
    queued, updated = _whole_seconds(created, status.start_time or created)
    return Goodput(queued_seconds=queued, updated=updated)


def _whole_seconds(since: datetime, until: datetime) -> tuple[int, datetime]:
    """Return the whole seconds between two times, and the end of the last one.

    Fractions of a second, which occur in local runs only, are counted with the next part.
    """
    seconds, fraction = divmod(max(until, since) - since, timedelta(seconds=1))
    return seconds, max(until, since) - fraction


def in_words(spent: Goodput) -> str:
    """Return the times in one line; empty if all are zero."""
    parts = {
        "training": spent.training_seconds,
        "repeating steps": spent.repeating_seconds,
        "stalled": spent.stalled_seconds,
        "starting": spent.starting_seconds,
        "queued": spent.queued_seconds,
        "suspended": spent.suspended_seconds,
    }
    percent = 100 * spent.training_seconds // max(1, sum(parts.values()))
    shares = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts.items() if seconds)
    return f"{shares} ({percent}% training)" if shares else ""


def passes_mark(status: PaddleJobStatus, progress: TrainingProgress) -> bool:
    """Return whether the progress is the first of its attempt beyond the mark of earlier attempts."""
    if status.phase is not Phase.RUNNING or not _repeats_steps(status):
        return False
    return has_advanced(change_status(status, progress=progress))


def _current_part(status: PaddleJobStatus) -> str:
    if status.phase is not Phase.RUNNING:
        return "queued_seconds" if _is_queued(status) else _PARTS.get(status.phase, "queued_seconds")
    if _is_stalled(status):
        return "stalled_seconds"
    return "repeating_seconds" if _repeats_steps(status) else "training_seconds"


def _is_queued(status: PaddleJobStatus) -> bool:
    """Return whether a job waits to be admitted by a queue, possibly again after losing its quota."""
    last = status.last_failure.reason if status.last_failure else ""
    has_lost_quota = status.reason == Reason.WAITING_TO_RESTART and last == Reason.QUOTA_LOST
    return has_lost_quota or status.reason in (Reason.QUOTA_LOST, Reason.WAITING_FOR_GANG)


def _is_stalled(status: PaddleJobStatus) -> bool:
    return status.goodput is not None and status.goodput.stalled


def _repeats_steps(status: PaddleJobStatus) -> bool:
    return status.progress_mark is not None and not has_advanced(status)
