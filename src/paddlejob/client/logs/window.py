"""Resuming a log without a gap and without a repeat.

The API server can begin a log at a whole second, and lines of one second are many. So the lines delivered
lately are remembered, and those of a resumed stream that were delivered before are left out. Lines are
compared with their times to the nanosecond; equal ones are counted. Their order does not matter: a container
runtime stamps stdout and stderr apart from each other, so that times may go back by a little.
"""

from __future__ import annotations

from collections import Counter, deque
from datetime import UTC, datetime

from paddlejob.client.logs.model import time_of

LIMIT_BYTES = 1 << 20
"""How much of one log is remembered; where more is written in a second, times alone tell what is new."""
BACK_SECONDS = 1
"""By how much times may go back."""
KEPT_SECONDS = 2.0 + BACK_SECONDS
"""How much older than the newest line what is remembered may be: more than what a resumed stream repeats."""


class Window:
    """The last seconds of one log, as they were delivered."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._blocks: deque[tuple[float, bytes]] = deque()
        """Each with the time of its last line."""
        self._size = 0
        self._newest = 0.0
        self._known: Counter[bytes] | None = None
        """The lines that a resumed stream may still repeat; None when it has come past them."""
        self._forgotten = 0.0
        """The time of the last line that the limit did not allow to remember."""
        self._floor = 0.0
        self._begin = 0.0
        """The time of the first line that is wanted, where older ones are not."""
        self._is_leading = False
        """Whether a resumed stream has not come to the first known line yet."""

    @property
    def resume_from(self) -> str:
        """The whole second to resume from, empty when nothing was delivered yet."""
        if not self._newest:
            return ""
        return datetime.fromtimestamp(int(self._newest) - BACK_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def resume(self, *, same_clock: bool = True) -> None:
        """Expect a stream that repeats what was delivered, from `resume_from` or from the log's beginning.

        Where the limit did not allow to remember all of it, what is older counts as delivered too, unless it
        has another node's time.
        """
        if self._blocks:
            self._known = Counter(line for _, block in self._blocks for line in block[:-1].split(b"\n"))
            self._floor = self._forgotten if same_clock else 0.0
            self._begin = self._begin if same_clock else 0.0
            self._is_leading = True

    def begin_with(self, block: bytes) -> None:
        """Leave out lines before this block, the first of a log that is not wanted from its beginning.

        The second that a stream is resumed from may have such lines.
        """
        self._begin = _time(block) or 0.0

    def take(self, block: bytes) -> bytes:
        """Return the lines of a block that were not delivered yet; they count as delivered from now on."""
        new = block if self._known is None else self._without_known(block)
        if new:
            self._remember(new)
        return new

    def _without_known(self, block: bytes) -> bytes:
        assert self._known is not None
        new, last = [], 0.0
        for line in block[:-1].split(b"\n"):
            last = _time(line) or last
            if self._known[line] > 0:
                self._known[line] -= 1
                self._is_leading = False
            elif self._is_leading and last <= self._begin:
                continue
            elif not last or last > self._floor:
                new.append(line)
        if last >= self._newest + KEPT_SECONDS:
            self._known = None
        return b"\n".join((*new, b"")) if new else b""

    def _remember(self, block: bytes) -> None:
        last = block.rfind(b"\n", 0, -1) + 1
        time = _time(block[last:]) or self._newest
        self._newest = max(self._newest, time)
        self._blocks.append((time, block))
        self._size += len(block)
        while len(self._blocks) > 1:
            oldest, forgotten = self._blocks[0]
            if oldest >= self._newest - KEPT_SECONDS:
                if self._size <= self._limit_bytes:
                    break
                self._forgotten = max(self._forgotten, oldest)
            self._blocks.popleft()
            self._size -= len(forgotten)


def _time(line: bytes) -> float | None:
    """Return the time of a line in seconds, None for a line without one."""
    time = time_of(line)
    return time.timestamp() if time else None
