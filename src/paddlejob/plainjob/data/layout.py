"""Compute the ranges of every shard from line counts and sizes.

Shards are equal by lines, as in the original data job: a line is a training sample, so every trainer
has the same number of samples and batches, and no trainer waits for another at the end of a pass. `By.BYTES`
makes them equal by size.

A set of files is treated as one sequence of lines: each border between two shards cuts at most one file. If
the files of a set have different meanings, each file is its own group, and every shard gets a part of each.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec

from paddlejob.plainjob import errors


class By(enum.Enum):
    """The quantity that is equal for all shards."""

    LINES = "lines"
    BYTES = "bytes"


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """An input file: its path, its name in a shard, its checksum, and the data that reveals a change."""

    name: str
    origin: str
    size: int
    modified_ns: int = 0
    changed_ns: int = 0
    inode: int = 0
    sha256: str = ""
    """Checksum of the content; empty until the file has been read."""

    @property
    def stamp(self) -> tuple[int, int, int, int]:
        """A value that changes when the file is written or replaced, even if its times are reset."""
        return (self.size, self.modified_ns, self.changed_ns, self.inode)

    @classmethod
    def of(cls, path: Path, name: str) -> Source:
        """Return the source for a file. Raises OSError."""
        facts = path.stat()
        return cls(name, str(path), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)


class Cut(msgspec.Struct, frozen=True):
    """A border between two shards: the index of a source, and a position (line or byte) in it."""

    source: int
    position: int


class Piece(msgspec.Struct, frozen=True):
    """A byte range of a source that belongs to one shard. It begins and ends at line borders."""

    source: Source
    start: int
    stop: int
    lines: int | None = None
    """None unless lines were counted to find the borders."""

    @property
    def size(self) -> int:
        """The number of bytes to copy."""
        return self.stop - self.start


Shard = tuple[Piece, ...]


def targets(total: int, shards: int) -> tuple[int, ...]:
    """Return the positions of the shards + 1 borders. Parts differ by at most one; longer ones come first."""
    return tuple(shard * (total // shards) + min(shard, total % shards) for shard in range(shards + 1))


def cuts(totals: Sequence[int], shards: int) -> tuple[Cut, ...]:
    """Return the borders of equal parts of a sequence of sources with these totals of lines or bytes."""
    ends = list(accumulate(totals))
    return tuple(_locate(totals, ends, target) for target in targets(ends[-1] if ends else 0, shards))


def _locate(totals: Sequence[int], ends: Sequence[int], target: int) -> Cut:
    for source, end in enumerate(ends):
        if target < end:
            return Cut(source, target - (end - totals[source]))
    return Cut(len(totals) - 1, totals[-1])


class Range(msgspec.Struct, frozen=True):
    """A part of one source, in lines or bytes."""

    source: int
    start: int
    stop: int


def ranges(totals: Sequence[int], borders: Sequence[Cut]) -> tuple[tuple[Range, ...], ...]:
    """Return the ranges between consecutive borders, without empty ranges."""
    return tuple(tuple(_between(totals, first, last)) for first, last in pairwise(borders))


def _between(totals: Sequence[int], first: Cut, last: Cut) -> Iterator[Range]:
    for source in range(first.source, last.source + 1):
        start = first.position if source == first.source else 0
        stop = last.position if source == last.source else totals[source]
        if stop > start:
            yield Range(source, start, stop)


def merge(groups: Sequence[Sequence[Shard]]) -> tuple[Shard, ...]:
    """Return shards with their part of every group."""
    return tuple(sum(parts, ()) for parts in zip(*groups, strict=True))


def check_enough(lines: int, shards: int, subject: str) -> None:
    """Refuse more shards than there are lines. Raises DataError."""
    if lines < shards:
        raise errors.DataError(
            f"SPLIT_COUNT is {shards}, but {subject} has only {lines} line{'' if lines == 1 else 's'}: "
            f"lower SPLIT_COUNT to {max(lines, 1)} or less"
        )


def check_filled(shards: Sequence[Shard], subject: str) -> None:
    """Refuse empty shards, which result from long lines and equal bytes. Raises DataError."""
    for index, shard in enumerate(shards):
        if not shard:
            raise errors.DataError(
                f"shard {index} of {subject} would be empty, because a line is longer than a shard: "
                "lower SPLIT_COUNT, or use --by lines"
            )
