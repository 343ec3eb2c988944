"""The parts of a log stream: blocks of whole lines, and markers between them.

Lines are handled in blocks because a job of a hundred ranks writes more lines than Python can handle one by
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

STAMP = re.compile(rb"(?m)^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}[.0-9]*(?:Z|[+-][0-9]{2}:[0-9]{2}) ")
"""The timestamp that the API server writes in front of a line."""

_STARTS_IN_PLACE = re.compile(STAMP.pattern + rb"paddlejob: attempt ([0-9]{1,9}) starts in place$")
"""The line of a supervisor in front of those of the next program in the same container."""

MAX_REQUESTS = 200
"""The maximum number of logs that are read together, each over its own connection."""


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The lines to read."""

    rank: str = "all"
    """A worker's rank (0), a pod (ps-1), a role (ps) or all."""
    follow: bool = False
    """Begin before the first pod exists, cross restarts, and end with the job."""
    since_seconds: float | None = None
    tail: int | None = None
    """The number of last lines of each container; None for all."""
    previous: bool = False
    """The lines before the last restart of each container, or of its program."""
    container: str = ""
    """By default the training container."""
    all_containers: bool = False
    max_requests: int = MAX_REQUESTS
    recorded: bool = True
    """Whether to use the operator's record for deleted pods. Its lines all have the same time."""


ALL_LOGS = LogQuery()


class LogLine(msgspec.Struct, frozen=True):
    """One line of one rank, or a marker."""

    rank: str
    """Such as `worker-0`, or `worker-0/CONTAINER` for other containers; empty for a marker."""
    attempt: int
    text: str
    time: datetime | None = None


class LogBlock(msgspec.Struct, frozen=True):
    """Whole lines of one container, each with a timestamp in front and a line feed at the end."""

    rank: str
    attempt: int
    stamped: bytes

    @property
    def text(self) -> bytes:
        """The lines without timestamps."""
        return STAMP.sub(b"", self.stamped)

    def lines(self) -> Iterator[LogLine]:
        for line in self.stamped[:-1].split(b"\n"):
            stamp = STAMP.match(line)
            text = line[stamp.end() :] if stamp else line
            time = time_of(line)
            yield LogLine(self.rank, self.attempt, text.decode("utf-8", "replace"), time)


class Marker(msgspec.Struct, frozen=True):
    """A sentence between the lines about the job or the connection."""

    text: str
    attempt: int = 0
    is_part_of_log: bool = True
    """True for an event of the job, such as a restart; False for a state to show while waiting."""

    def lines(self) -> Iterator[LogLine]:
        yield LogLine("", self.attempt, self.text)


LogItem = LogBlock | Marker


def by_attempt(stamped: bytes, attempt: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a container by attempt; they begin in `attempt`, which only grows."""
    begin = 0
    # Most blocks have no border, and a search for plain bytes is much faster.
    borders = _STARTS_IN_PLACE.finditer(stamped) if b" starts in place\n" in stamped else ()
    for border in borders:
        if int(border[1]) > attempt:
            if border.start() > begin:
                yield attempt, stamped[begin : border.start()]
            attempt, begin = int(border[1]), border.start()
    yield attempt, stamped[begin:]


def time_of(line: bytes) -> datetime | None:
    """Return the timestamp of a line to the microsecond, None if it has no valid one."""
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
