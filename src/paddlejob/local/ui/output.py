"""The base of the live, plain and JSON outputs, and the streams they write to."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

from paddlejob.local.runner import Ending, Observer
from paddlejob.local.store.logs import Follower, LogLines, chosen_pods
from paddlejob.local.store.run_directory import Outcome, RunDirectory, RunRecord
from paddlejob.local.ui.view import RunView

POLL_SECONDS = 0.2
MAX_ROUNDS = 32
"""Reads per call of `show_new_lines`: a flood of output must not freeze the view."""
EXIT_CODES = {Ending.COMPLETED: 0, Ending.FAILED: 1, Ending.INTERRUPTED: 130, Ending.STOPPED: 130}


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
