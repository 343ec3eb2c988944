"""What a run prints: the contract that the live view, plain lines and JSON share."""

from __future__ import annotations

from typing import Protocol

from paddlejob.local.logs import Lines
from paddlejob.local.session import Session
from paddlejob.local.world import Ending, Observer


class Output(Observer, Protocol):
    """Shows a run to whoever watches."""

    may_skip: bool
    """Whether only the end of a flood of lines is of interest."""

    def began(self, session: Session) -> None:
        """The run is about to begin."""

    def said(self, lines: Lines) -> None:
        """A pod wrote lines. Called in a thread, so that a slow terminal holds nobody up."""

    def tick(self) -> None:
        """Time passes: a moment to draw. Called in a thread."""

    def interrupted(self, times: int) -> None:
        """A person wants the run to end."""

    def ended(self, ending: Ending) -> None:
        """The run is over."""


EXIT_CODES = {Ending.COMPLETED: 0, Ending.FAILED: 1, Ending.INTERRUPTED: 130, Ending.DELETED: 130}
