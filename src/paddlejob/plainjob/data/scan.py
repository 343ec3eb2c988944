"""Count lines and find the offset of the n-th line, in constant memory and at disk speed."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

from paddlejob.plainjob import errors
from paddlejob.plainjob.data.layout import Source

BLOCK = 1 << 18
"""Bytes per read: larger blocks do not fit into the processor's cache and are slower."""
MAX_MARKS = 4096
"""The maximum length of an index, for any file size."""

Advance = Callable[[int], None]


class LineIndex:
    """The number of line ends in each stretch of a file. One stretch is read to find a line."""

    def __init__(self, source: Source, stretch: int, marks: array[int], *, lines: int, sha256: str) -> None:
        self._source = source
        self._stretch = stretch
        self._marks = marks
        self.lines = lines
        self.sha256 = sha256

    def offset_of(self, line: int) -> int:
        """Return the offset of line number `line` (from 0), the file size for the number of lines."""
        if line == 0 or line >= self.lines:
            return 0 if line == 0 else self._source.size
        remaining = line
        for stretch, ends in enumerate(self._marks):
            if remaining <= ends:
                return _after_line_end(self._source, stretch * self._stretch, remaining)
            remaining -= ends
        raise changed_error(self._source)


def count_lines(source: Source, advance: Advance) -> LineIndex:
    """Read a file once and return its index. Raises DataError."""
    stretch = max(BLOCK, -(-source.size // MAX_MARKS // BLOCK) * BLOCK)
    marks = array("Q", [0] * -(-source.size // stretch))
    position, last, digest = 0, b"\n", hashlib.sha256()
    for block in blocks(source, 0, source.size):
        digest.update(block)
        marks[position // stretch] += block.count(b"\n")
        position += len(block)
        last = block[-1:]
        advance(len(block))
    lines = sum(marks) + (last != b"\n")
    return LineIndex(source, stretch, marks, lines=lines, sha256=digest.hexdigest())


def next_line_start(source: Source, offset: int) -> int:
    """Return the start of the first line at or after `offset`."""
    if offset == 0 or offset >= source.size:
        return min(offset, source.size)
    return _after_line_end(source, offset - 1, 1)


def _after_line_end(source: Source, offset: int, number: int) -> int:
    for block in blocks(source, offset, source.size):
        ends = block.count(b"\n")
        if ends >= number:
            return offset + _nth(block, number) + 1
        number -= ends
        offset += len(block)
    return source.size


def _nth(block: bytes, number: int) -> int:
    position = -1
    for _ in range(number):
        position = block.index(b"\n", position + 1)
    return position


def blocks(source: Source, start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes of a range, block by block, cut at multiples of BLOCK.

    Raises DataError when the file cannot be read, or ends early because it was changed.
    """
    try:
        with Path(source.origin).open("rb", buffering=0) as stream:
            os.posix_fadvise(stream.fileno(), start, stop - start, os.POSIX_FADV_SEQUENTIAL)
            while start < stop:
                block = os.pread(stream.fileno(), min(BLOCK - start % BLOCK, stop - start), start)
                if not block:
                    raise changed_error(source)
                yield block
                start += len(block)
    except OSError as error:
        raise read_error(source.origin, error) from error


def changed_error(source: Source) -> errors.DataError:
    """Return the error for a file that changed during the split."""
    return errors.DataError(f"{source.origin} changed while it was read: split it again when it is finished")


def read_error(path: str | Path, error: OSError) -> errors.DataError:
    """Return the error for an input that cannot be read."""
    return errors.DataError(f"cannot read {path}: {error.strerror or error}")
