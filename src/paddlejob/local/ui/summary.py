"""The last lines of a run: the verdict, written files, and the log of a failed pod."""

from __future__ import annotations

from collections.abc import Iterator

from paddlejob.core.pod_set import pod_name
from paddlejob.local.input.interpreter import ADVICE
from paddlejob.local.runner import Ending
from paddlejob.local.store import logs
from paddlejob.local.store.outcome import read_end
from paddlejob.local.store.run_directory import Outcome
from paddlejob.local.ui.view import PodRow, RunView

LAST_LINES = 15
MAX_FILES = 5
MISSING_PADDLE = "No module named 'paddle'"


def interruption(times: int) -> str:
    """Return the message for a request to stop."""
    if times > 1:
        return "killing all pods"
    return "stopping, waiting for pods to save their work (press Ctrl-C again to kill them)"


def details(view: RunView, ending: Ending, outcome: Outcome, *, selection: str) -> Iterator[str]:
    """Yield the lines above the verdict: the log of a failed pod unless it was shown, and written files."""
    if ending is Ending.FAILED and (failed := _failed_row(view)):
        pod = pod_name(view.job.name, failed.replica)
        if not logs.chosen_pods(view.job.name, selection, (pod,)):
            yield from _last_lines(view, pod, failed)
    yield from _written_files(view, outcome)
    if ending is Ending.FAILED and MISSING_PADDLE in view.job.status.message:
        yield f"python is {view.python}, which has no Paddle; {ADVICE}"


def verdict(view: RunView, ending: Ending, outcome: Outcome) -> str:
    """Return the result of a run in one line."""
    message = view.job.status.message
    detail = {Ending.COMPLETED: outcome.summary or message, Ending.FAILED: message}.get(ending)
    return f"{view.job.name} {ending} in {view.seconds:.1f} s" + (f": {detail}" if detail else "")


def _written_files(view: RunView, outcome: Outcome) -> Iterator[str]:
    """Yield the location of written files: people would look next to the job file."""
    named = outcome.files[:MAX_FILES]
    for each in named:
        yield f"wrote {each.path} ({logs.short_name(view.job.name, each.pod)}): {each.location}"
    if named:
        pod, path = logs.short_name(view.job.name, named[0].pod), named[0].path.partition("/")[0]
        more = "and more; " if outcome.has_more_files or len(outcome.files) > MAX_FILES else ""
        run = view.run
        yield f"{more}copy with `paddlejob cp {run.name} {pod}:{path} .{run.run_dir_flag}`"


def _failed_row(view: RunView) -> PodRow | None:
    """Return the pod whose failure ended the job."""
    failure = view.job.status.last_failure
    if failure is None or failure.attempt != view.job.status.attempt:
        return None
    return next((row for row in view.rows() if pod_name(view.job.name, row.replica) == failure.pod), None)


def _last_lines(view: RunView, pod: str, row: PodRow) -> Iterator[str]:
    for log in view.run.logs(pod):
        tail = read_end(log, 8192).decode(errors="replace").splitlines()[-LAST_LINES:]
        yield from (f"  {row.replica} | {line}" for line in tail)
