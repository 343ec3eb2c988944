"""Training steps over the attempts of a job, counted over all epochs.

The step of a job never goes back. After a restart the mark records how far earlier attempts got, and
`lost_steps` counts the steps that restarts threw away.
"""

from __future__ import annotations

import msgspec

from paddlejob.api import names
from paddlejob.api.status_change import change_status
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase, ProgressMark, TrainingProgress
from paddlejob.text import duration

STEPS_PER_SECOND = "steps/s"
"""Unit of the throughput that the recorder reports."""
_MAX_DIGITS = 15


class Origin(msgspec.Struct, frozen=True):
    """How a process that counts its own steps began."""

    resumed: bool = False
    """Resumed from a checkpoint, instead of from step 0."""
    restarted: bool = False
    """Replaced another process in the same pod. A smaller step alone may come from another rank."""


def add_report(
    before: TrainingProgress | None, reported: TrainingProgress, *, attempt: int, origin: Origin | None = None
) -> TrainingProgress:
    """Return the progress of a job after a report from one of its processes.

    `reported` has the steps of that process. If `origin` is given, the process counts them from 0, also after
    a restart. Otherwise it reports its step within the whole training.
    """
    reported = msgspec.structs.replace(reported, attempt=attempt)
    if before is None:
        return reported
    if attempt != before.attempt and before.step and not reported.step:
        # The attempt begins with its first step.
        return before
    begins = attempt != before.attempt or (origin is not None and origin.restarted)
    start = _first_step(before, reported, origin) if begins else before.resumed_step
    lost = before.lost_steps + (_lost_steps(before, start, origin) if begins else 0)
    if origin is not None:
        reported = _count_from(start, reported, before)
    known = msgspec.structs.replace(
        reported,
        resumed_step=start if origin is not None else 0,
        saved_step=reported.saved_step or before.saved_step,
        lost_steps=lost,
        processes=reported.processes or before.processes,
    )
    if known.step < before.step:
        known = msgspec.structs.replace(
            known,
            step=before.step,
            steps=known.steps or before.steps,
            epoch=before.epoch,
            epoch_step=before.epoch_step,
            percent=before.percent,
            attempt_step=known.step,
        )
    # A process that counts from 0 may count to a smaller total.
    return known if known.steps >= known.step else msgspec.structs.replace(known, steps=0)


def _first_step(before: TrainingProgress, reported: TrainingProgress, origin: Origin | None) -> int:
    if origin is None:
        return reported.step
    return before.saved_step if origin.resumed else 0


def _lost_steps(before: TrainingProgress, start: int, origin: Origin | None) -> int:
    """Return the number of steps to repeat, negative if the checkpoint is ahead of them."""
    lost = (before.attempt_step or before.step) - start
    # The first reported step may be a little later than the step at which the process began.
    return max(0, lost) if origin is None else lost


def _count_from(start: int, reported: TrainingProgress, before: TrainingProgress) -> TrainingProgress:
    """Return a report with its steps counted from the beginning of the job."""
    if not start:
        return reported
    step = reported.step + start
    return msgspec.structs.replace(
        reported,
        step=step,
        # A process counts its epochs from 1 and does not know in which epoch it resumed.
        epoch=max(reported.epoch, before.epoch),
        saved_step=reported.saved_step + start if reported.saved_step else 0,
        percent=percentage(step / reported.steps) if reported.steps else reported.percent,
    )


def percentage(fraction: float) -> int:
    """Return a part of the work as a rounded percentage. 100 is left to completed jobs."""
    return min(99, round(100 * fraction))


def declared_total(job: PaddleJob) -> int | None:
    """Return the total number of steps in the job's annotation, None if it is not a positive number."""
    text = job.metadata.annotations.get(names.ANNOTATION_TOTAL_STEPS, "")
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) or None if is_number else None


def of_total(progress: TrainingProgress, total: int | None) -> TrainingProgress:
    """Return the progress of a program that reports no total, as a part of the declared one."""
    if total is None or progress.steps or not 0 < progress.step <= total:
        return progress
    done = progress.attempt_step or progress.step
    number, _, unit = progress.throughput.partition(" ")
    eta = duration((total - done) / float(number)) if unit == STEPS_PER_SECOND and done < total else ""
    return msgspec.structs.replace(
        progress, steps=total, percent=percentage(progress.step / total), eta=progress.eta or eta
    )


def at_end(progress: TrainingProgress, phase: Phase) -> TrainingProgress:
    """Return the progress of a job that ended in a phase."""
    percent = 100 if phase is Phase.COMPLETED else progress.percent
    return msgspec.structs.replace(progress, percent=percent, eta="")


def has_advanced(status: PaddleJobStatus) -> bool:
    """Return whether the current attempt is known to have made a step that no earlier attempt made."""
    progress, mark = status.progress, status.progress_mark
    if progress is None or progress.attempt < status.first_process_attempt:
        return False
    reached = (progress.epoch, progress.step)
    return reached > ((mark.epoch, mark.step) if mark else (0, 0))


def end_attempt(status: PaddleJobStatus, *, counted: bool) -> PaddleJobStatus:
    """Record how far the current attempt got; `counted` says whether a counted failure ended it."""
    if has_advanced(status):
        assert status.progress is not None
        mark = ProgressMark(status.progress.epoch, status.progress.step)
        return change_status(status, progress_mark=mark, restarts_without_progress=0)
    if not knows_steps(status):
        return status
    return change_status(status, restarts_without_progress=status.restarts_without_progress + counted)


def add_late_progress(status: PaddleJobStatus, late: TrainingProgress | None) -> PaddleJobStatus:
    """Raise the mark if progress of an attempt becomes known after its end.

    The current attempt has to repeat these steps. The attempt that ended made new steps, so the count of
    restarts without progress begins again.
    """
    mark = status.progress_mark or ProgressMark()
    if late is None or late.attempt >= status.first_process_attempt:
        return status
    if (late.epoch, late.step) <= (mark.epoch, mark.step):
        return status
    return change_status(
        status, progress_mark=ProgressMark(late.epoch, late.step), restarts_without_progress=0
    )


def is_stuck(status: PaddleJobStatus, limit: int) -> bool:
    """Return whether a failure now would be the last of `limit` restarts without a new step."""
    return not has_advanced(status) and status.restarts_without_progress + 1 >= limit


def knows_steps(status: PaddleJobStatus) -> bool:
    """Return whether any attempt reported its steps."""
    return status.progress_mark is not None or has_advanced(status)
