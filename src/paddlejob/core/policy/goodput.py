"""How a job spends its time, counted at each write that changes its phase, attempt, admission or a hang."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Goodput, PaddleJob, PaddleJobStatus, Phase, TrainingProgress
from paddlejob.core.attempts.advance import has_advanced
from paddlejob.core.messages import duration
from paddlejob.core.recording.hangs import Hang

_PARTS = {
    Phase.STARTING: "starting_seconds",
    Phase.RESTARTING: "starting_seconds",
    Phase.SCALING: "starting_seconds",
    Phase.SUSPENDED: "suspended_seconds",
}


def with_goodput(
    job: PaddleJob, new: PaddleJobStatus, now: datetime, hang: Hang | None = None
) -> PaddleJobStatus:
    """Return a new status with the time up to now, or to the end of the job, if its activity has changed."""
    old, is_stalled = job.status, _is_stalled(job.status)
    goes_on = (old.phase, old.attempt, _is_queued(old)) == (new.phase, new.attempt, _is_queued(new))
    stalls = hang is not None and old.phase is Phase.RUNNING
    if old.phase.is_terminal or (goes_on and stalls == is_stalled):
        return new
    if hang is not None and stalls and not is_stalled:
        # It is known only now, and began with the last step.
        began = goodput_at(job, now - timedelta(seconds=hang.seconds))
        job = _with(job, began, stalled=True)
    if not goes_on or not stalls:
        job = _with(job, goodput_at(job, new.completion_time or now), stalled=False)
    return msgspec.structs.replace(new, goodput=job.status.goodput)


def _with(job: PaddleJob, spent: Goodput | None, *, stalled: bool) -> PaddleJob:
    spent = spent and msgspec.structs.replace(spent, stalled=stalled)
    return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, goodput=spent))


def goodput_at(job: PaddleJob, until: datetime) -> Goodput | None:
    """Return the times of a job up to a moment; they sum to the whole seconds from its creation to then."""
    status, created = job.status, job.metadata.creation_timestamp
    if created is None:
        return None
    known = status.goodput or _before_counting(status, created)
    since = known.updated or created
    seconds, updated = _whole_seconds(since, until)
    part = _part(status)
    return msgspec.structs.replace(known, updated=updated, **{part: getattr(known, part) + seconds})


def _before_counting(status: PaddleJobStatus, created: datetime) -> Goodput:
    """Return the times until a job first ran, of an operator that did not count them."""
    queued, updated = _whole_seconds(created, status.start_time or created)
    return Goodput(queued_seconds=queued, updated=updated)


def _whole_seconds(since: datetime, until: datetime) -> tuple[int, datetime]:
    """Return the seconds between two times and when the last of them ended.

    A fraction of a second, which only the clock of a laptop has, is counted with the next part.
    """
    seconds, fraction = divmod(max(until, since) - since, timedelta(seconds=1))
    return seconds, max(until, since) - fraction


def in_words(spent: Goodput) -> str:
    """Return the times in one line; empty where there are none."""
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


def gets_ahead(status: PaddleJobStatus, progress: TrainingProgress) -> bool:
    """Return whether progress is the first of an attempt beyond what attempts before it have reached."""
    if status.phase is not Phase.RUNNING or not _repeats(status):
        return False
    return has_advanced(msgspec.structs.replace(status, progress=progress))


def _part(status: PaddleJobStatus) -> str:
    if status.phase is not Phase.RUNNING:
        return "queued_seconds" if _is_queued(status) else _PARTS.get(status.phase, "queued_seconds")
    if _is_stalled(status):
        return "stalled_seconds"
    return "repeating_seconds" if _repeats(status) else "training_seconds"


def _is_queued(status: PaddleJobStatus) -> bool:
    """Return whether a job waits for its admission by a queue, perhaps again after it lost its quota."""
    last = status.last_failure.reason if status.last_failure else ""
    has_lost = status.reason == Reason.WAITING_TO_RESTART and last == Reason.QUOTA_LOST
    return has_lost or status.reason in (Reason.QUOTA_LOST, Reason.WAITING_FOR_GANG)


def _is_stalled(status: PaddleJobStatus) -> bool:
    return status.goodput is not None and status.goodput.stalled


def _repeats(status: PaddleJobStatus) -> bool:
    return status.progress_mark is not None and not has_advanced(status)
