"""Reads the logs of a run in order of time.

Each <container>.log has a <container>.times, pairs of a time and the log's size at that time, and a
<container>.starts, one line per start of the container with the log's size at that time.
"""

from __future__ import annotations

import heapq
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from paddlejob.local.sandbox.supervisor import STAMP_FORMAT
from paddlejob.local.store.logs import CHUNK_BYTES, LogLines
from paddlejob.local.store.run_directory import RunDirectory


class TimedLines(NamedTuple):
    """Whole lines and the time they were written, in seconds since the epoch."""

    time: float
    lines: LogLines


class History:
    """The output so far of the containers of some pods, read in pieces."""

    def __init__(
        self, run: RunDirectory, pods: Iterable[str], *, tail: int | None = None, previous: bool = False
    ) -> None:
        """`previous`: read only the second to last start of each restarted container."""
        logs = [log for pod in sorted(pods) for log in run.logs(pod)]
        self._spans = {log: _previous_span(log) if previous else None for log in logs}
        self._logs = [log for log in logs if not previous or self._spans[log]]
        self._tail = tail
        self.ends: dict[Path, int] = {}
        """Offset up to which each log was read: the end of its last whole line."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no container to read."""
        return not self._logs

    def read(self) -> Iterator[TimedLines]:
        """Yield all lines, or the last `tail` lines of each container, in order of time."""
        return heapq.merge(*map(self._read_log, self._logs), key=lambda each: each.time)

    def _read_log(self, log: Path) -> Iterator[TimedLines]:
        if self._tail is None:
            yield from self._pieces(log)
            return
        last: deque[TimedLines] = deque(maxlen=self._tail)
        for piece in self._pieces(log):
            last.extend(_split_lines(piece))
        yield from last

    def _pieces(self, log: Path) -> Iterator[TimedLines]:
        position, last = self._spans[log] or (0, None)
        partial, time = b"", 0.0
        with log.open("rb") as reader:
            reader.seek(position)
            for time, size in _stamps(log):
                end = size if last is None else min(size, last)
                while position < end and (chunk := reader.read(min(end - position, CHUNK_BYTES))):
                    position += len(chunk)
                    whole, newline, partial = (partial + chunk).rpartition(b"\n")
                    if newline:
                        yield TimedLines(time, LogLines(log.parent.name, log.stem, whole + newline))
                if position == last:
                    break
        if last is not None and partial:
            yield TimedLines(time, LogLines(log.parent.name, log.stem, partial + b"\n"))
        self.ends[log] = position - len(partial)


def record_start(log: Path) -> int:
    """Record that a container starts, and return the size of its log."""
    size = log.stat().st_size if log.exists() else 0
    with log.with_suffix(".starts").open("a") as starts:
        starts.write(f"{size}\n")
    return size


def _previous_span(log: Path) -> tuple[int, int] | None:
    try:
        starts = [int(line) for line in log.with_suffix(".starts").read_text().split()]
    except OSError:
        return None
    return (starts[-2], starts[-1]) if len(starts) > 1 else None


def _split_lines(piece: TimedLines) -> Iterator[TimedLines]:
    pod, container = piece.lines.pod, piece.lines.container
    for line in piece.lines.text.splitlines(keepends=True):
        yield TimedLines(piece.time, LogLines(pod, container, line))


def _stamps(log: Path) -> Iterator[tuple[float, int]]:
    """Yield times and the log's size at each; the last entry covers output without a recorded time."""
    status = log.stat()
    try:
        content = log.with_suffix(".times").read_bytes()
    except OSError:
        content = b""
    size = struct.calcsize(STAMP_FORMAT)
    yield from struct.iter_unpack(STAMP_FORMAT, content[: len(content) // size * size])
    yield status.st_mtime, status.st_size
