"""Parse progress and losses of a job from the log of its first worker."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from paddlejob.client.logs.model import LogLine
from paddlejob.training.log_lines import Progress, Tracker

RANK = "0"
MAX_LINES = 20_000
"""The number of last lines that are read. Older points are missing in the curve."""


class Point(TypedDict):
    """The last reported values at one moment."""

    time: datetime | None
    attempt: int
    epoch: int | None
    step: int | None
    loss: float | None
    throughput: float | None


class Metrics:
    """Collects the metrics of one worker."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        self.points: list[Point] = []
        self.last_line = ""
        self._attempt = 0

    @property
    def progress(self) -> Progress | None:
        """The latest progress of the program."""
        return self.tracker.progress

    def feed(self, line: LogLine) -> None:
        """Parse one line."""
        if not line.rank:
            return
        self.last_line = line.text
        if line.attempt != self._attempt:
            self._attempt = line.attempt
            self.tracker.restart()
        if not self.tracker.feed(line.text, line.time.timestamp() if line.time else 0.0):
            return
        current = self.tracker.progress
        assert current is not None
        self.points.append(
            Point(
                time=line.time,
                attempt=line.attempt,
                epoch=current.epoch,
                step=current.step,
                loss=current.loss,
                throughput=current.throughput,
            )
        )
        if len(self.points) > MAX_LINES:
            del self.points[: MAX_LINES // 2]
