"""Progress and losses of a job, read from what its first worker prints."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from paddlejob.client.logs.model import LogLine
from paddlejob.progress import Progress, Tracker

RANK = "0"
MOST_LINES = 20_000
"""How much of the log's end is read; what is older is missing in the curve."""


class Point(TypedDict):
    """What the program had reported at one moment."""

    time: datetime | None
    attempt: int
    epoch: int | None
    step: int | None
    loss: float | None
    throughput: float | None


class Metrics:
    """Follows the lines of one worker."""

    def __init__(self) -> None:
        self.tracker = Tracker()
        self.points: list[Point] = []
        self.last_line = ""

    @property
    def progress(self) -> Progress | None:
        """How far the program is."""
        return self.tracker.progress

    def eta_seconds(self, now: float) -> float | None:
        """Return how long it still takes, None where that is unknown."""
        return self.tracker.eta_seconds(now)

    def feed(self, line: LogLine) -> None:
        """Take note of a line."""
        if not line.rank:
            return
        self.last_line = line.text
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
        if len(self.points) > MOST_LINES:
            del self.points[: MOST_LINES // 2]
