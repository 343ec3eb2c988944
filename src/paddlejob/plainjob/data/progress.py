"""Progress of long copies: a bar on a terminal, plain lines in a pod's log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, TextIO

LINE_EVERY_SECONDS = 5.0


class ProgressSink(Protocol):
    """Where progress goes. `advance` is called from several threads."""

    def begin(self, what: str, total: int) -> None:
        """Start a phase of `total` bytes."""
        ...

    def advance(self, size: int) -> None:
        """Count bytes done in this phase."""
        ...

    def end(self) -> None:
        """Finish the phase."""
        ...


class Silent:
    """No progress."""

    def begin(self, what: str, total: int) -> None:
        """Do nothing."""

    def advance(self, size: int) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


class Bar:
    """A bar that redraws itself."""

    def __init__(self, stream: TextIO) -> None:
        from rich import progress as bars  # noqa: PLC0415 - takes a tenth of a second
        from rich.console import Console  # noqa: PLC0415

        columns = (
            bars.TextColumn("{task.description:<14}"),
            bars.BarColumn(),
            bars.DownloadColumn(),
            bars.TransferSpeedColumn(),
            bars.TimeRemainingColumn(),
        )
        self._progress = bars.Progress(*columns, console=Console(file=stream))
        self._task = self._progress.add_task("", total=None, visible=False)

    def begin(self, what: str, total: int) -> None:
        """Show a new bar."""
        self._task = self._progress.add_task(what, total=total)
        self._progress.start()

    def advance(self, size: int) -> None:
        """Move the bar."""
        self._progress.advance(self._task, size)

    def end(self) -> None:
        """Leave the finished bar on the screen."""
        self._progress.stop()


class Lines:
    """One line every few seconds and one at the end of a phase."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._what, self._total, self._done = "", 0, 0
        self._began = self._said = 0.0

    def begin(self, what: str, total: int) -> None:
        """Remember when the phase began."""
        self._what, self._total, self._done = what, total, 0
        self._began = self._said = self._clock()

    def advance(self, size: int) -> None:
        """Say how far it is, at most every LINE_EVERY_SECONDS."""
        with self._lock:
            self._done += size
            now = self._clock()
            if now - self._said >= LINE_EVERY_SECONDS:
                self._said = now
                self._say(now)

    def end(self) -> None:
        """Say how fast the phase was."""
        self._say(self._clock())

    def _say(self, now: float) -> None:
        share = 100 * self._done / self._total if self._total else 100
        speed = self._done / max(now - self._began, 1e-3)
        text = f"{self._what}: {share:.0f} % of {human(self._total)}, {human(speed)}/s"
        print(text, file=self._stream, flush=True)


def human(size: float) -> str:
    """Return a number of bytes in human-readable form."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def for_stream(stream: TextIO) -> ProgressSink:
    """Return a progress sink for a terminal or a log."""
    return Bar(stream) if stream.isatty() else Lines(stream)
