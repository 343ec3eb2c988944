"""Signals: handed to the trainer while it runs, so that it can save; otherwise they end the waiting."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Target(Protocol):
    """Something that takes signals."""

    def send(self, number: int) -> None:
        """Pass a signal on."""
        ...


class Interruptions:
    """What becomes of signals that reach one node."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._target: Target | None = None
        self._task: asyncio.Task[int] | None = None

    def interrupt(self, number: int) -> None:
        """Take a signal: the first goes to the trainer as it is, the next one kills it."""
        again = self.received is not None
        self.received = self.received or number
        if self._target is not None:
            self._target.send(signal.SIGKILL if again else number)
        elif self._task is not None:
            self._task.cancel()

    def otherwise_cancel(self, task: asyncio.Task[int]) -> None:
        """Say what a signal ends while there is no trainer to take it."""
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
    """Call `handle` for every signal that asks this process to end."""
    loop = asyncio.get_running_loop()
    for number in FORWARDED:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in FORWARDED:
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(number)
