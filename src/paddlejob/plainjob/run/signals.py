"""Signals: forwarded to the trainer while it runs, so that it can save; otherwise they end the wait."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Target(Protocol):
    """Something that receives signals."""

    def send(self, number: int) -> None:
        """Forward a signal."""
        ...


class Interruptions:
    """What signals do to one pod."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._target: Target | None = None
        self._task: asyncio.Task[int] | None = None

    def interrupt(self, number: int) -> None:
        """Handle a signal: the first is forwarded to the trainer, the next one kills it."""
        again = self.received is not None
        self.received = self.received or number
        if self._target is not None:
            self._target.send(signal.SIGKILL if again else number)
        elif self._task is not None:
            self._task.cancel()

    def otherwise_cancel(self, task: asyncio.Task[int]) -> None:
        """Set the task that a signal cancels while no trainer runs."""
        self._task = task

    @contextmanager
    def forwarded_to(self, target: Target) -> Iterator[None]:
        """Forward signals while the block runs."""
        self._target = target
        try:
            yield
        finally:
            self._target = None


@contextmanager
def signals_to(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` for every signal that asks this process to stop."""
    loop = asyncio.get_running_loop()
    for number in FORWARDED:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in FORWARDED:
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(number)
