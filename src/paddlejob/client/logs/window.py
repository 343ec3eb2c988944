"""Resume a log without gaps and without repeated lines.

The API server can only begin a log at a whole second, and one second can have many lines. So the last
delivered lines are kept, and a resumed stream skips them. Lines are compared including their timestamps in
nanoseconds, and equal lines are counted. Their order does not matter: container runtimes stamp stdout and
stderr separately, so timestamps may decrease a little.
"""

from __future__ import annotations

from collections import Counter, deque
from datetime import UTC, datetime

from paddlejob.client.logs.model import time_of

LIMIT_BYTES = 1 << 20
"""The limit for kept lines of one log. Beyond it, new lines are recognised by time only."""
BACK_SECONDS = 1
"""By how much timestamps may decrease."""
KEPT_SECONDS = 2.0 + BACK_SECONDS
"""The age up to which lines are kept: more than a resumed stream repeats."""


class Window:
    """The delivered lines of the last seconds of one log."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._blocks: deque[tuple[float, bytes]] = deque()
        """Blocks with the time of their last line."""
        self._size = 0
        self._newest = 0.0
        self._known: Counter[bytes] | None = None
        """The lines that a resumed stream may still repeat; None after it has passed them."""
        self._forgotten = 0.0
        """The time of the last line that was dropped because of the limit."""
        self._floor = 0.0
        self._begin = 0.0
        """The time of the first wanted line, if older ones are not wanted."""
        self._is_leading = False
        """Whether a resumed stream has not reached the first known line yet."""

    @property
    def resume_from(self) -> str:
        """The whole second to resume from, empty if nothing was delivered yet."""
        if not self._newest:
            return ""
        return datetime.fromtimestamp(int(self._newest) - BACK_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def resume(self, *, same_clock: bool = True) -> None:
        """Expect a stream that repeats delivered lines, from `resume_from` or from the start of the log.

        Lines older than those dropped because of the limit count as delivered, unless they come from
        another node with another clock.
        """
        if self._blocks:
            self._known = Counter(line for _, block in self._blocks for line in block[:-1].split(b"\n"))
            self._floor = self._forgotten if same_clock else 0.0
            self._begin = self._begin if same_clock else 0.0
            self._is_leading = True

    def begin_with(self, block: bytes) -> None:
        """Skip lines before this block, the first block of a log that does not start at its beginning.

        A stream that is resumed at a whole second may have such lines.
        """
        self._begin = _time(block) or 0.0

    def take(self, block: bytes) -> bytes:
        """Return the lines of a block that were not delivered yet, and record them as delivered."""
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
    """Return the timestamp of a line in seconds, None if it has none."""
    time = time_of(line)
    return time.timestamp() if time else None
