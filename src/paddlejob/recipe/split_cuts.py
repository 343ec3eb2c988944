"""From sources to shards: counts lines where needed, and remembers the result for the next attempt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from paddlejob.recipe import manifest, split_plan
from paddlejob.recipe.manifest import SplitKey
from paddlejob.recipe.progress import ProgressSink
from paddlejob.recipe.split_plan import By, Cut, Shard, Source
from paddlejob.recipe.split_scan import count_lines, next_line_start


class SavedPlan(msgspec.Struct, frozen=True):
    """The cuts of an unfinished split, so that a resumed one does not count a second time."""

    split: str
    shards: tuple[Shard, ...]


def plan_shards(key: SplitKey, state: Path, progress: ProgressSink) -> tuple[Shard, ...]:
    """Return the byte ranges of every shard. Raises DataError."""
    saved = _saved(state / "plan.json")
    if saved is not None and saved.split == key.digest:
        return saved.shards
    groups = [(source,) for source in key.sources] if key.each else [key.sources]
    shards = split_plan.merge([_equal(group, key, progress) for group in groups])
    manifest.write_whole(state / "plan.json", msgspec.json.encode(SavedPlan(key.digest, shards)))
    return shards


def _equal(group: Sequence[Source], key: SplitKey, progress: ProgressSink) -> tuple[Shard, ...]:
    if key.by is By.BYTES:
        return _equal_bytes(group, key.split_count)
    progress.begin("counting lines", sum(source.size for source in group))
    try:
        return _equal_lines(group, key.split_count, progress)
    finally:
        progress.end()


def _saved(path: Path) -> SavedPlan | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedPlan)
    except (OSError, msgspec.MsgspecError):
        return None


def _equal_lines(sources: Sequence[Source], shards: int, progress: ProgressSink) -> tuple[Shard, ...]:
    indexes = [count_lines(source, progress.advance) for source in sources]
    totals = [index.lines for index in indexes]
    split_plan.check_enough(sum(totals), shards, _what(sources))
    borders = split_plan.cuts(totals, shards)
    in_bytes = [Cut(cut.source, indexes[cut.source].offset_of(cut.position)) for cut in borders]
    sizes = [source.size for source in sources]
    return split_plan.pieces(sources, split_plan.ranges(sizes, in_bytes), split_plan.ranges(totals, borders))


def _equal_bytes(sources: Sequence[Source], shards: int) -> tuple[Shard, ...]:
    sizes = [source.size for source in sources]
    wished = split_plan.cuts(sizes, shards)
    borders = [Cut(cut.source, next_line_start(sources[cut.source], cut.position)) for cut in wished]
    found = split_plan.pieces(sources, split_plan.ranges(sizes, borders))
    split_plan.check_filled(found, _what(sources))
    return found


def _what(sources: Sequence[Source]) -> str:
    return sources[0].origin if len(sources) == 1 else f"the set of {len(sources)} files"
