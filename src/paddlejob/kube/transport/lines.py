"""Splits chunks of bytes into lines."""

from __future__ import annotations

from collections.abc import AsyncIterator

from paddlejob.kube.errors import ResponseTooLargeError


class LineSplitter:
    """Collects chunks and returns complete lines.

    Guarantees linear time: the chunks of a long line are joined once.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._unfinished: list[bytes] = []
        self._max_bytes = max_bytes
        self._unfinished_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without LF or CRLF, including empty lines.

        Raises ResponseTooLargeError for a line above the maximum.
        """
        completed = []
        first, *others = chunk.split(b"\n")
        self._unfinished.append(first)
        for start_of_next in others:
            completed.append(self._take())
            self._unfinished.append(start_of_next)
        self._unfinished_bytes = len(self._unfinished[-1]) + (0 if others else self._unfinished_bytes)
        if self._max_bytes is not None and self._unfinished_bytes > self._max_bytes:
            raise ResponseTooLargeError(f"the server sent a line of more than {self._max_bytes >> 20} MiB")
        return completed

    def finish(self) -> bytes:
        """Return the rest after the last line end."""
        return self._take()

    def _take(self) -> bytes:
        line = self._unfinished[0] if len(self._unfinished) == 1 else b"".join(self._unfinished)
        self._unfinished.clear()
        # Strip CR only from the joined line: CR and LF can arrive in different chunks.
        return line.removesuffix(b"\r")


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, including a last one without a line end.

    A line that is cut by an error is not yielded; the error propagates.
    """
    splitter = LineSplitter()
    async for chunk in chunks:
        for line in splitter.feed(chunk):
            yield line
    if rest := splitter.finish():
        yield rest
