"""The base of the live, plain and JSON outputs, their streams, and the last lines of a run."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from paddlejob.core.pod_set import pod_name
from paddlejob.local.input.interpreter import ADVICE
from paddlejob.local.runner import Ending, Observer
from paddlejob.local.store import logs
from paddlejob.local.store.logs import Follower, LogLines, chosen_pods
from paddlejob.local.store.outcome import read_end
from paddlejob.local.store.run_directory import Outcome, RunDirectory, RunRecord
from paddlejob.local.ui.view import PodRow, RunView

POLL_SECONDS = 0.2
MAX_ROUNDS = 32
"""Reads per call of `show_new_lines`: a flood of output must not freeze the view."""
EXIT_CODES = {Ending.COMPLETED: 0, Ending.FAILED: 1, Ending.INTERRUPTED: 130, Ending.STOPPED: 130}
LAST_LINES = 15
MAX_FILES = 5
MISSING_PADDLE = "No module named 'paddle'"


class Output(Observer, ABC):
    """Shows a run. `on_start` is called first."""

    view: RunView

    def __init__(self, logs: str, *, may_skip: bool) -> None:
        """`logs`: whose output is shown; `may_skip`: only the end of a flood of lines is needed."""
        self.logs = logs
        self.may_skip = may_skip

    def on_start(self, run: RunDirectory, record: RunRecord, *, is_attached: bool = False) -> None:
        """The run is about to start. `is_attached`: Ctrl-C ends only the view."""
        del is_attached
        self.view = RunView(run, record)

    def is_selected(self, lines: LogLines) -> bool:
        """Return whether the user asked for the output of this pod."""
        return bool(chosen_pods(self.view.job.name, self.logs, (lines.pod,)))

    @abstractmethod
    def on_log(self, lines: LogLines) -> None:
        """A pod wrote lines. Called in a thread, so that a slow terminal does not block the run."""

    @abstractmethod
    def tick(self) -> None:
        """All available lines have been passed on: redraw if needed. Called in a thread."""

    @abstractmethod
    def on_interrupt(self, times: int) -> None:
        """The user asked to stop the run."""

    @abstractmethod
    def on_detach(self) -> None:
        """The run continues, but is no longer shown."""

    @abstractmethod
    def on_end(self, ending: Ending, outcome: Outcome) -> None:
        """The run has ended."""


def show_new_lines(follower: Follower, output: Output) -> None:
    """Pass new log lines to the output."""
    for _ in range(MAX_ROUNDS):
        pieces = list(follower.poll(may_skip=output.may_skip))
        for lines in pieces:
            output.on_log(lines)
        if not pieces:
            break
    output.tick()


def show_rest(follower: Follower, output: Output) -> None:
    """Pass all remaining log lines to the output, after every writer has ended."""
    if output.may_skip:
        show_new_lines(follower, output)
    for lines in follower.rest():
        output.on_log(lines)


class Stream:
    """A stream that is redirected to /dev/null after its first error.

    A reader that leaves, as in `| head` or with a closed terminal, must not end the run.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        """Write data, or drop it after an error."""
        try:
            self._stream.write(data)
        except OSError:
            self._abandon()
        return len(data)

    def flush(self) -> None:
        """Flush the stream, unless it failed before."""
        try:
            self._stream.flush()
        except OSError:
            self._abandon()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _abandon(self) -> None:
        """Redirect the descriptor, so that data in Python's buffer can be flushed too."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


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
