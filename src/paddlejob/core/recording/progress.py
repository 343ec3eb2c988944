"""Progress over attempts: a step that never falls, and how many steps restarts have thrown away."""

from __future__ import annotations

import msgspec

from paddlejob.api.v1 import TrainingProgress


class Origin(msgspec.Struct, frozen=True):
    """Where a process that counts its own steps began."""

    resumed: bool = False
    """From a checkpoint; else from the beginning."""
    restarted: bool = False
    """After another process of the same pod; a smaller step alone may be that of another rank."""


def advanced(
    before: TrainingProgress | None, reported: TrainingProgress, *, attempt: int, origin: Origin | None = None
) -> TrainingProgress:
    """Return the progress of a job after a report of one of its processes.

    `reported` has the steps of that process. With an `origin` it counts them from 0, also after a restart;
    without one it says which step of all training it is at.
    """
    reported = msgspec.structs.replace(reported, attempt=attempt)
    if before is None:
        return reported
    begins = attempt != before.attempt or (origin is not None and origin.restarted)
    start = _start(before, reported, origin) if begins else before.resumed_step
    lost = before.lost_steps + (_lost(before, start, origin) if begins else 0)
    if origin is not None:
        reported = _shifted(reported, start, before)
    known = msgspec.structs.replace(
        reported,
        resumed_step=start if origin is not None else 0,
        saved_step=reported.saved_step or before.saved_step,
        lost_steps=lost,
        steps=reported.steps or before.steps,
    )
    if _done(known) >= _done(before):
        return known
    return msgspec.structs.replace(
        known, step=before.step, epoch=before.epoch, percent=before.percent, attempt_step=_done(known)
    )


def _start(before: TrainingProgress, reported: TrainingProgress, origin: Origin | None) -> int:
    if origin is None:
        return _done(reported)
    return before.saved_step if origin.resumed else 0


def _lost(before: TrainingProgress, start: int, origin: Origin | None) -> int:
    """Return how many steps are to be done again, negative where the checkpoint is ahead of them."""
    lost = _reached(before) - start
    # A step that is said is seen a little after the process began there.
    return max(0, lost) if origin is None else lost


def _shifted(reported: TrainingProgress, start: int, before: TrainingProgress) -> TrainingProgress:
    """Return what a process tells with its steps counted from the beginning of the job."""
    if not start:
        return reported
    step = reported.step + start
    return msgspec.structs.replace(
        reported,
        step=step,
        # A process counts its epochs from 1; which one it has resumed in, it does not know.
        epoch=max(reported.epoch, before.epoch),
        saved_step=reported.saved_step + start if reported.saved_step else 0,
        percent=min(100, 100 * step // reported.steps) if reported.steps else reported.percent,
    )


def _reached(progress: TrainingProgress) -> int:
    """Return the step that the attempt itself is at."""
    return progress.attempt_step or _done(progress)


def _done(progress: TrainingProgress) -> int:
    """Return the step over all epochs."""
    if progress.epochs and progress.steps:
        return (max(1, progress.epoch) - 1) * progress.steps + progress.step
    return progress.step
