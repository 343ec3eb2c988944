"""What a stream of logs consists of: blocks of whole lines, and markers between them.

Lines travel in blocks because a job of a hundred ranks writes more of them than Python can handle one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

STAMP = re.compile(rb"(?m)^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}[.0-9]*(?:Z|[+-][0-9]{2}:[0-9]{2}) ")
"""The time in front of a line, as the API server writes it when asked for timestamps."""

MAX_REQUESTS = 200
"""How many logs are read at a time, each over a connection of its own."""


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines to read."""

    rank: str = "all"
    """A worker's rank (0), a pod (ps-1), a role (ps) or all."""
    follow: bool = False
    """Begin before the first pod exists, cross restarts, and end with the job."""
    since_seconds: float | None = None
    tail: int | None = None
    """Only so many of the last lines of each container."""
    previous: bool = False
    """The logs of containers before their last restart."""
    container: str = ""
    """By default the one that trains."""
    all_containers: bool = False
    max_requests: int = MAX_REQUESTS
    recorded: bool = True
    """Whether the operator's record replaces the logs of deleted pods; its lines share one time."""


ALL_LOGS = LogQuery()


class LogLine(msgspec.Struct, frozen=True):
    """One line of one rank, or a marker."""

    rank: str
    """Such as worker-0, with the container's name where it is not the one that trains; empty for a marker."""
    attempt: int
    text: str
    time: datetime | None = None


class LogBlock(msgspec.Struct, frozen=True):
    """Whole lines of one container, each with its time in front and a line feed at its end."""

    rank: str
    attempt: int
    stamped: bytes

    @property
    def text(self) -> bytes:
        """The lines without their times."""
        return STAMP.sub(b"", self.stamped)

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines one by one."""
        for line in self.stamped[:-1].split(b"\n"):
            stamp = STAMP.match(line)
            text = line[stamp.end() :] if stamp else line
            time = time_of(line)
            yield LogLine(self.rank, self.attempt, text.decode("utf-8", "replace"), time)


class Marker(msgspec.Struct, frozen=True):
    """A sentence between the lines about what happened to the job or to the connection."""

    text: str
    attempt: int = 0
    is_part_of_log: bool = True
    """Whether it belongs between the lines, such as a restart, or is news for who waits, such as a delay."""

    def lines(self) -> Iterator[LogLine]:
        """Yield it as a line."""
        yield LogLine("", self.attempt, self.text)


LogItem = LogBlock | Marker


def time_of(line: bytes) -> datetime | None:
    """Return the time in front of a line, to the microsecond; None without one, or for an impossible one."""
    stamp = STAMP.match(line)
    if stamp is None:
        return None
    try:
        time = datetime.fromisoformat(_NANOSECONDS.sub(r"\1", stamp[0].decode().rstrip()))
        time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return time


_NANOSECONDS = re.compile(r"(\.[0-9]{6})[0-9]+")
