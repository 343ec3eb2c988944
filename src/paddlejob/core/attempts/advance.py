"""Whether an attempt got further than all attempts before it, by its reported steps."""

from __future__ import annotations

from paddlejob.api.v1 import PaddleJobStatus, ProgressMark


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


def is_stuck(status: PaddleJobStatus, limit: int) -> bool:
    """Return whether the attempt that fails now is the last of so many restarts that got no further."""
    return not has_advanced(status) and status.restarts_without_progress + 1 >= limit


def knows_steps(status: PaddleJobStatus) -> bool:
    """Return whether any attempt reported its steps, so that progress can be judged at all."""
    return status.progress_mark is not None or has_advanced(status)
