"""Whether an attempt got further than all attempts before it, by its reported steps."""

from __future__ import annotations

from paddlejob.api.v1 import PaddleJobStatus, ProgressMark, TrainingProgress


def has_advanced(status: PaddleJobStatus) -> bool:
    """Return whether the present attempt is known to have made a step that no earlier one has made."""
    progress, mark = status.progress, status.progress_mark
    if progress is None or progress.attempt < status.base_attempt:
        return False
    reached = (progress.epoch, progress.step)
    return reached > ((mark.epoch, mark.step) if mark else (0, 0))


def after_attempt(status: PaddleJobStatus, *, counted: bool) -> dict[str, object]:
    """Return the changes of a status when the present attempt ends, perhaps by a failure that counts."""
    if has_advanced(status):
        assert status.progress is not None
        mark = ProgressMark(status.progress.epoch, status.progress.step)
        return {"progress_mark": mark, "restarts_without_progress": 0}
    if not knows_steps(status):
        return {}
    return {"restarts_without_progress": status.restarts_without_progress + counted}


def after_late_progress(status: PaddleJobStatus, late: TrainingProgress | None) -> dict[str, object]:
    """Return the changes of a status when progress of an attempt becomes known after its end.

    It raises the mark: the present attempt has to repeat these steps. The attempt that ended had made new
    steps, so the restarts without progress begin from 0 again.
    """
    mark = status.progress_mark or ProgressMark()
    if late is None or late.attempt >= status.base_attempt:
        return {}
    if (late.epoch, late.step) <= (mark.epoch, mark.step):
        return {}
    return {"progress_mark": ProgressMark(late.epoch, late.step), "restarts_without_progress": 0}


def is_stuck(status: PaddleJobStatus, limit: int) -> bool:
    """Return whether the attempt that fails now is the last of so many restarts that got no further."""
    return not has_advanced(status) and status.restarts_without_progress + 1 >= limit


def knows_steps(status: PaddleJobStatus) -> bool:
    """Return whether any attempt reported its steps, so that progress can be judged at all."""
    return status.progress_mark is not None or has_advanced(status)
