"""What a run prints: the contract that the live view, plain lines and JSON share."""

from __future__ import annotations

from typing import Protocol

import msgspec

from paddlejob.api.v1 import PaddleJob
from paddlejob.local.runner import Ending, Observer
from paddlejob.local.store.logs import LogLines
from paddlejob.local.store.run_directory import Outcome, RunDirectory


class Shown(msgspec.Struct, frozen=True):
    """The run that is shown."""

    job: PaddleJob
    directory: RunDirectory
    notes: tuple[str, ...] = ()
    python: str = ""
    """The interpreter of its containers, and why it was chosen."""
    is_attached: bool = False
    """Whether Ctrl-C ends only the view of it."""


class Output(Observer, Protocol):
    """Shows a run to whoever watches."""

    may_skip: bool
    """Whether only the end of a flood of lines is of interest."""

    def on_start(self, shown: Shown) -> None:
        """The run is about to begin."""

    def on_log(self, lines: LogLines) -> None:
        """A pod wrote lines. Called in a thread, so that a slow terminal holds nobody up."""

    def tick(self) -> None:
        """All lines that there were have been passed on: a moment to draw. Called in a thread."""

    def on_interrupt(self, times: int) -> None:
        """A person wants the run to end."""

    def on_detach(self) -> None:
        """The run goes on, and is not shown any more."""

    def on_end(self, ending: Ending, outcome: Outcome) -> None:
        """The run is over."""


EXIT_CODES = {Ending.COMPLETED: 0, Ending.FAILED: 1, Ending.INTERRUPTED: 130, Ending.STOPPED: 130}
