"""The last lines of a run: how it went, in one sentence, and where to look further."""

from __future__ import annotations

from collections.abc import Iterator

from paddlejob.api.v1 import Role
from paddlejob.core.pod_set import pod_name
from paddlejob.local.runner import Ending
from paddlejob.local.store.run_directory import RunDirectory
from paddlejob.local.ui.view import PodRow, RunView

LAST_LINES = 15


def interruption(times: int) -> str:
    """Say what a request to stop leads to."""
    if times > 1:
        return "stopping at once"
    return "stopping; the pods may save their work (once more stops them at once)"


def lines(view: RunView, ending: Ending, run: RunDirectory, *, with_log: bool) -> Iterator[str]:
    """Yield how a run ended; of a failure also the last words of the pod that failed."""
    if ending is Ending.FAILED and with_log and (failed := _culprit(view)):
        yield from _last_lines(run, view.job.name, failed)
    yield f"{view.job.name} {ending} in {view.seconds:.1f} s" + _detail(view, ending)
    if ending is not Ending.COMPLETED:
        yield f"see `paddlejob logs {run.name}`"


def _culprit(view: RunView) -> PodRow | None:
    """Return the pod whose failure ended the job."""
    failure = view.job.status.last_failure
    if failure is None or failure.attempt != view.job.status.attempt:
        return None
    return next((row for row in view.rows() if pod_name(view.job.name, row.replica) == failure.pod), None)


def _detail(view: RunView, ending: Ending) -> str:
    if ending is Ending.COMPLETED:
        first = next((row for row in view.rows() if row.replica.role is Role.WORKER), None)
        return f": {first.result}" if first and first.result else ""
    message = view.job.status.message
    return f": {message}" if ending is Ending.FAILED and message else ""


def _last_lines(run: RunDirectory, job: str, row: PodRow) -> Iterator[str]:
    for log in run.logs(f"{job}-{row.replica}"):
        with log.open("rb") as reader:
            reader.seek(max(0, reader.seek(0, 2) - 8192))
            tail = reader.read().decode(errors="replace").splitlines()[-LAST_LINES:]
        yield from (f"  {row.replica} | {line}" for line in tail)
