"""What a run prints: the contract that the live view, plain lines and JSON share."""

from __future__ import annotations

from typing import Protocol

from paddlejob.local.local_run import LocalRun
from paddlejob.local.runner import Ending, Observer
from paddlejob.local.store.logs import LogLines


class Output(Observer, Protocol):
    """Shows a run to whoever watches."""

    may_skip: bool
    """Whether only the end of a flood of lines is of interest."""

    def on_start(self, local_run: LocalRun) -> None:
        """The run is about to begin."""

    def on_log(self, lines: LogLines) -> None:
        """A pod wrote lines. Called in a thread, so that a slow terminal holds nobody up."""

    def tick(self) -> None:
        """Time passes: a moment to draw. Called in a thread."""

    def on_interrupt(self, times: int) -> None:
        """A person wants the run to end."""

    def on_end(self, ending: Ending) -> None:
        """The run is over."""


EXIT_CODES = {Ending.COMPLETED: 0, Ending.FAILED: 1, Ending.INTERRUPTED: 130, Ending.DELETED: 130}
