"""Where to cut: pure arithmetic from line counts and sizes to the byte ranges of every shard.

Shards are equal by lines, as in the original data job: a line is a training sample, so every trainer
has the same number of samples and of batches, and none waits for another at the end of a pass. `By.BYTES`
makes them equal by size.

A set of files is one long run of lines: at most one file is cut at each border between two shards. Where the
files of a set mean different things, each is a group of its own and every shard gets its share of every file.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec

from paddlejob.plainjob import errors


class By(enum.Enum):
    """What is made equal between shards."""

    LINES = "lines"
    BYTES = "bytes"


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """A file to read: where it is, what it is called in a shard, what it holds, and how to see it change."""

    name: str
    origin: str
    size: int
    modified_ns: int = 0
    changed_ns: int = 0
    inode: int = 0
    sha256: str = ""
    """Checksum of the content; empty until it has been read."""

    @property
    def stamp(self) -> tuple[int, int, int, int]:
        """What differs when a file is written to or replaced, even if its times are set back."""
        return (self.size, self.modified_ns, self.changed_ns, self.inode)

    @classmethod
    def of(cls, path: Path, name: str) -> Source:
        """Look at a file. Raises OSError."""
        facts = path.stat()
        return cls(name, str(path), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)


class Cut(msgspec.Struct, frozen=True):
    """A border between two shards: a source of the group, and a position (line or byte) in it."""

    source: int
    position: int


class Piece(msgspec.Struct, frozen=True):
    """A byte range of a source that belongs to one shard; begins and ends at line borders."""

    source: Source
    start: int
    stop: int
    lines: int | None = None
    """Known beforehand only when lines were counted to find the borders."""

    @property
    def size(self) -> int:
        """How many bytes to copy."""
        return self.stop - self.start


Shard = tuple[Piece, ...]


def targets(total: int, shards: int) -> tuple[int, ...]:
    """Return the positions of the shards+1 borders; parts differ by one at most, longer ones first."""
    return tuple(shard * (total // shards) + min(shard, total % shards) for shard in range(shards + 1))


def cuts(totals: Sequence[int], shards: int) -> tuple[Cut, ...]:
    """Return the borders of `shards` equal parts of a run of sources with these totals of lines or bytes."""
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
    """Return what lies between each two borders; empty parts are left out."""
    return tuple(tuple(_between(totals, first, last)) for first, last in pairwise(borders))


def _between(totals: Sequence[int], first: Cut, last: Cut) -> Iterator[Range]:
    for source in range(first.source, last.source + 1):
        start = first.position if source == first.source else 0
        stop = last.position if source == last.source else totals[source]
        if stop > start:
            yield Range(source, start, stop)


def pieces(
    sources: Sequence[Source],
    parts: Sequence[Sequence[Range]],
    lines: Sequence[Sequence[Range]] | None = None,
) -> tuple[Shard, ...]:
    """Return the shards whose byte ranges are `parts`; `lines` are the same ranges in lines, where known."""
    counted: Sequence[Sequence[Range | None]] = lines or [[None] * len(part) for part in parts]
    return tuple(
        tuple(_piece(sources, *pair) for pair in zip(part, count, strict=True))
        for part, count in zip(parts, counted, strict=True)
    )


def _piece(sources: Sequence[Source], part: Range, lines: Range | None) -> Piece:
    return Piece(sources[part.source], part.start, part.stop, lines.stop - lines.start if lines else None)


def merge(groups: Sequence[Sequence[Shard]]) -> tuple[Shard, ...]:
    """Return shards that hold their part of every group."""
    return tuple(sum(parts, ()) for parts in zip(*groups, strict=True))


def check_enough(lines: int, shards: int, what: str) -> None:
    """Refuse more shards than there are lines. Raises DataError."""
    if lines < shards:
        raise errors.DataError(
            f"SPLIT_COUNT is {shards}, but {what} has only {lines} line{'' if lines == 1 else 's'}: "
            f"lower SPLIT_COUNT to {max(lines, 1)} or less"
        )


def check_filled(shards: Sequence[Shard], what: str) -> None:
    """Refuse empty shards, which equal bytes can leave where lines are long. Raises DataError."""
    for index, shard in enumerate(shards):
        if not shard:
            raise errors.DataError(
                f"shard {index} of {what} would be empty, because a line is longer than a shard: "
                "lower SPLIT_COUNT, or use --by lines"
            )
