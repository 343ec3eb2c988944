"""From sources to shards: reads the inputs where needed, and remembers the result for the next attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from paddlejob.plainjob.data import layout, manifest
from paddlejob.plainjob.data.inputs import Inputs
from paddlejob.plainjob.data.layout import By, Cut, Piece, Shard, Source
from paddlejob.plainjob.data.manifest import SplitKey
from paddlejob.plainjob.data.progress import ProgressSink
from paddlejob.plainjob.data.scan import LineIndex, count_lines, next_line_start
from paddlejob.plainjob.data.writer import check_unchanged

PLAN = "plan.json"


class SavedPiece(msgspec.Struct, frozen=True):
    """A piece of the n-th source, wherever that is mounted next time."""

    source: int
    start: int
    stop: int
    lines: int | None


class SavedPlan(msgspec.Struct, frozen=True):
    """The cuts of an unfinished split, so that a resumed one does not read the inputs a second time."""

    key: SplitKey
    shards: tuple[tuple[SavedPiece, ...], ...]


class Reading(msgspec.Struct, frozen=True):
    """Inputs whose content is known, and the line indexes of those that were read to know it."""

    inputs: Inputs
    indexes: Mapping[str, LineIndex]


def read_inputs(inputs: Inputs, job: Path, progress: ProgressSink) -> Reading:
    """Read what an earlier run has not read, or what has changed since. Raises DataError."""
    known = {(source.name, source.stamp): source.sha256 for source in _known_sources(job)}
    everything = (*inputs.split, *inputs.shared)
    fresh = [source for source in everything if not known.get((source.name, source.stamp))]
    indexes = _count(fresh, progress) if fresh else {}
    check_unchanged(fresh)

    def with_content(source: Source) -> Source:
        found = indexes.get(source.name)
        content = found.sha256 if found is not None else known[source.name, source.stamp]
        return msgspec.structs.replace(source, sha256=content)

    return Reading(
        Inputs(tuple(map(with_content, inputs.split)), tuple(map(with_content, inputs.shared))), indexes
    )


def _known_sources(job: Path) -> tuple[Source, ...]:
    finished, saved = manifest.read_job(job), _saved(job / ".split" / PLAN)
    return (
        *((*finished.sources, *finished.shared) if finished is not None else ()),
        *((*saved.key.sources, *saved.key.shared) if saved is not None else ()),
    )


def _count(sources: Sequence[Source], progress: ProgressSink) -> dict[str, LineIndex]:
    progress.begin("reading inputs", sum(source.size for source in sources))
    try:
        return {source.name: count_lines(source, progress.advance) for source in sources}
    finally:
        progress.end()


def plan_shards(
    key: SplitKey, indexes: Mapping[str, LineIndex], state: Path, scratch: Path, progress: ProgressSink
) -> tuple[Shard, ...]:
    """Return the byte ranges of every shard. Raises DataError."""
    saved = _saved(state / PLAN)
    if saved is not None and saved.key.digest == key.digest:
        return tuple(tuple(_restored(piece, key) for piece in shard) for shard in saved.shards)
    groups = [(source,) for source in key.sources] if key.each else [key.sources]
    if key.by is By.LINES:
        unread = [source for source in key.sources if source.name not in indexes]
        indexes = {**indexes, **(_count(unread, progress) if unread else {})}
    shards = layout.merge([_equal(group, key, indexes) for group in groups])
    manifest.replace_whole(state / PLAN, msgspec.json.encode(_saveable(key, shards)), scratch)
    return shards


def _restored(piece: SavedPiece, key: SplitKey) -> Piece:
    return Piece(key.sources[piece.source], piece.start, piece.stop, piece.lines)


def _saveable(key: SplitKey, shards: Sequence[Shard]) -> SavedPlan:
    number = {source.name: index for index, source in enumerate(key.sources)}
    return SavedPlan(
        key,
        tuple(
            tuple(SavedPiece(number[one.source.name], one.start, one.stop, one.lines) for one in shard)
            for shard in shards
        ),
    )


def _equal(group: Sequence[Source], key: SplitKey, indexes: Mapping[str, LineIndex]) -> tuple[Shard, ...]:
    if key.by is By.BYTES:
        return _equal_bytes(group, key.split_count)
    return _equal_lines(group, key.split_count, [indexes[source.name] for source in group])


def _saved(path: Path) -> SavedPlan | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedPlan)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def _equal_lines(sources: Sequence[Source], shards: int, indexes: Sequence[LineIndex]) -> tuple[Shard, ...]:
    totals = [index.lines for index in indexes]
    layout.check_enough(sum(totals), shards, _what(sources))
    borders = layout.cuts(totals, shards)
    in_bytes = [Cut(cut.source, indexes[cut.source].offset_of(cut.position)) for cut in borders]
    sizes = [source.size for source in sources]
    return layout.pieces(sources, layout.ranges(sizes, in_bytes), layout.ranges(totals, borders))


def _equal_bytes(sources: Sequence[Source], shards: int) -> tuple[Shard, ...]:
    sizes = [source.size for source in sources]
    wished = layout.cuts(sizes, shards)
    borders = [Cut(cut.source, next_line_start(sources[cut.source], cut.position)) for cut in wished]
    found = layout.pieces(sources, layout.ranges(sizes, borders))
    layout.check_filled(found, _what(sources))
    return found


def _what(sources: Sequence[Source]) -> str:
    return sources[0].origin if len(sources) == 1 else f"the set of {len(sources)} files"
