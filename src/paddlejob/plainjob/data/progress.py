"""Progress of long copies: a bar on a terminal, plain lines in a pod's log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TextIO

LINE_EVERY_SECONDS = 5.0


class ProgressSink:
    """Receives progress. Subclasses show it. `advance` is called from several threads."""

    def begin(self, name: str, total: int) -> None:
        """Start a phase of `total` bytes."""

    def advance(self, size: int) -> None:
        """Count bytes done in this phase."""

    def end(self) -> None:
        """Finish the phase."""


class Bar(ProgressSink):
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

    def begin(self, name: str, total: int) -> None:
        self._task = self._progress.add_task(name, total=total)
        self._progress.start()

    def advance(self, size: int) -> None:
        self._progress.advance(self._task, size)

    def end(self) -> None:
        self._progress.stop()


class Lines(ProgressSink):
    """One line every few seconds and one at the end of a phase."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._name, self._total, self._done = "", 0, 0
        self._began = self._printed = 0.0

    def begin(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        self._began = self._printed = self._clock()

    def advance(self, size: int) -> None:
        with self._lock:
            self._done += size
            now = self._clock()
            if now - self._printed >= LINE_EVERY_SECONDS:
                self._printed = now
                self._print(now)

    def end(self) -> None:
        self._print(self._clock())

    def _print(self, now: float) -> None:
        share = 100 * self._done / self._total if self._total else 100
        speed = self._done / max(now - self._began, 1e-3)
        text = f"{self._name}: {share:.0f} % of {human(self._total)}, {human(speed)}/s"
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
