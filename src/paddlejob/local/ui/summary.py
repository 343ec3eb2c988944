"""The last lines of a run: how it went, in one sentence, and where to look further."""

from __future__ import annotations

from collections.abc import Iterator

from paddlejob.core.pod_set import pod_name
from paddlejob.local.input.interpreter import WAY_OUT
from paddlejob.local.runner import Ending
from paddlejob.local.store import logs
from paddlejob.local.store.run_directory import Outcome, RunDirectory
from paddlejob.local.ui.output import Shown
from paddlejob.local.ui.view import PodRow, RunView

LAST_LINES = 15
MOST_FILES = 5
MISSING_PADDLE = "No module named 'paddle'"


def interruption(times: int) -> str:
    """Say what a request to stop leads to."""
    if times > 1:
        return "killing all pods"
    return "stopping, waiting for pods to save their work (press Ctrl-C again to kill them)"


def details(
    view: RunView, ending: Ending, outcome: Outcome, shown: Shown, *, selection: str
) -> Iterator[str]:
    """Yield what belongs above the verdict: of a failure the last lines of that pod, unless seen before."""
    run = shown.directory
    if ending is Ending.FAILED and (failed := _culprit(view)):
        pod = pod_name(view.job.name, failed.replica)
        if not logs.chosen_pods(view.job.name, selection, (pod,)):
            yield from _last_lines(run, pod, failed)
    yield from _written_files(outcome, run, view.job.name)
    if ending is Ending.FAILED and MISSING_PADDLE in view.job.status.message:
        yield f"python is {shown.python}, which has no Paddle; {WAY_OUT}"


def verdict(view: RunView, ending: Ending, outcome: Outcome) -> str:
    """Return how a run ended, in one line."""
    message = view.job.status.message
    detail = {Ending.COMPLETED: outcome.summary or message, Ending.FAILED: message}.get(ending)
    return f"{view.job.name} {ending} in {view.seconds:.1f} s" + (f": {detail}" if detail else "")


def _written_files(outcome: Outcome, run: RunDirectory, job: str) -> Iterator[str]:
    """Name what was written: people look for it beside the job's file, where it is not."""
    named = outcome.files[:MOST_FILES]
    for each in named:
        yield f"wrote {each.path} ({logs.short_name(job, each.pod)}): {each.location}"
    if named:
        pod, path = logs.short_name(job, named[0].pod), named[0].path.partition("/")[0]
        more = "and more; " if outcome.has_more_files or len(outcome.files) > MOST_FILES else ""
        yield f"{more}copy with `paddlejob cp {run.name} {pod}:{path} .`"


def _culprit(view: RunView) -> PodRow | None:
    """Return the pod whose failure ended the job."""
    failure = view.job.status.last_failure
    if failure is None or failure.attempt != view.job.status.attempt:
        return None
    return next((row for row in view.rows() if pod_name(view.job.name, row.replica) == failure.pod), None)


def _last_lines(run: RunDirectory, pod: str, row: PodRow) -> Iterator[str]:
    for log in run.logs(pod):
        with log.open("rb") as reader:
            reader.seek(max(0, reader.seek(0, 2) - 8192))
            tail = reader.read().decode(errors="replace").splitlines()[-LAST_LINES:]
        yield from (f"  {row.replica} | {line}" for line in tail)
