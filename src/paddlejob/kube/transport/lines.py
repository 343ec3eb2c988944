"""From chunks of bytes to lines."""

from __future__ import annotations

from collections.abc import AsyncIterator

from paddlejob.kube.errors import ResponseTooLargeError


class LineSplitter:
    """Collects chunks and gives back the lines that are complete.

    Guarantees time linear in the bytes fed: a long line's chunks are kept apart and joined once.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._unfinished: list[bytes] = []
        self._max_bytes = max_bytes
        self._unfinished_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without their LF or CRLF; empty lines too.

        Raises ResponseTooLargeError for a line that grows beyond the maximum.
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
        """Return what follows the last line end, empty when nothing does."""
        return self._take()

    def _take(self) -> bytes:
        line = self._unfinished[0] if len(self._unfinished) == 1 else b"".join(self._unfinished)
        self._unfinished.clear()
        # Only here is the line whole: CR and LF may have come in different chunks.
        return line.removesuffix(b"\r")


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream as they become complete, and a last one that has no line end.

    Guarantees that a line cut by an error of the stream is not yielded; the error is raised instead.
    """
    splitter = LineSplitter()
    async for chunk in chunks:
        for line in splitter.feed(chunk):
            yield line
    if rest := splitter.finish():
        yield rest
