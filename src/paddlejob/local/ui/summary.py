"""The last lines of a run: how it went, in one sentence, and where to look further."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from paddlejob.core.pod_set import pod_name
from paddlejob.local.local_run import LocalRun
from paddlejob.local.runner import Ending
from paddlejob.local.store import files, logs
from paddlejob.local.store.run_directory import RunDirectory
from paddlejob.local.ui.view import PodRow, RunView

LAST_LINES = 15
MOST_FILES = 5
MISSING_PADDLE = "No module named 'paddle'"


def interruption(times: int) -> str:
    """Say what a request to stop leads to."""
    if times > 1:
        return "killing all pods"
    return "stopping, waiting for pods to save their work (press Ctrl-C again to kill them)"


def lines(view: RunView, ending: Ending, local_run: LocalRun, *, shown: str) -> Iterator[str]:
    """Yield how a run ended; of a failure also the last lines of that pod, unless shown before."""
    run = local_run.run_directory
    if ending is Ending.FAILED and (failed := _culprit(view)):
        pod = f"{view.job.name}-{failed.replica}"
        if not logs.chosen_pods(view.job.name, shown, (pod,)):
            yield from _last_lines(run, pod, failed)
    yield from _written_files(run, view.job.name)
    if ending is Ending.FAILED and MISSING_PADDLE in view.job.status.message:
        yield (
            f"python is {local_run.python.path} ({local_run.python.origin}), which has no Paddle; "
            "choose another with --python, or activate its environment"
        )
    yield f"{view.job.name} {ending} in {view.seconds:.1f} s" + _detail(view, ending)
    if ending is not Ending.COMPLETED:
        yield f"see `paddlejob logs {run.name}`"


def _written_files(run: RunDirectory, job: str) -> Iterator[str]:
    """Name what was written: people look for it beside the job's file, where it is not."""
    found = list(itertools.islice(files.written(run), MOST_FILES + 1))
    for each in found[:MOST_FILES]:
        yield f"wrote {each.path} ({logs.short_name(job, each.pod)})"
    if found:
        pod, path = logs.short_name(job, found[0].pod), found[0].path.partition("/")[0]
        more = "and more; " if len(found) > MOST_FILES else ""
        yield f"{more}copy with `paddlejob cp {run.name} {pod}:{path} .`"


def _culprit(view: RunView) -> PodRow | None:
    """Return the pod whose failure ended the job."""
    failure = view.job.status.last_failure
    if failure is None or failure.attempt != view.job.status.attempt:
        return None
    return next((row for row in view.rows() if pod_name(view.job.name, row.replica) == failure.pod), None)


def _detail(view: RunView, ending: Ending) -> str:
    if ending is Ending.COMPLETED:
        return f": {view.result}" if view.result else ""
    message = view.job.status.message
    return f": {message}" if ending is Ending.FAILED and message else ""


def _last_lines(run: RunDirectory, pod: str, row: PodRow) -> Iterator[str]:
    for log in run.logs(pod):
        with log.open("rb") as reader:
            reader.seek(max(0, reader.seek(0, 2) - 8192))
            tail = reader.read().decode(errors="replace").splitlines()[-LAST_LINES:]
        yield from (f"  {row.replica} | {line}" for line in tail)
