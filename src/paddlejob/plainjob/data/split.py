"""`paddlejob data split` and `verify`: split files into `<job>/{0..N-1}/data`.

A split can be interrupted and run again: it reads the inputs, finds the existing shards, plans the cuts,
writes the missing shards and publishes the manifest.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path

import msgspec

from paddlejob.plainjob import errors
from paddlejob.plainjob.data import layout, manifest
from paddlejob.plainjob.data.inputs import TRAINING_NAMES, Inputs, gather
from paddlejob.plainjob.data.layout import By, Cut, Piece, Range, Shard, Source
from paddlejob.plainjob.data.manifest import FileEntry, Manifest, ShardManifest, SplitKey
from paddlejob.plainjob.data.progress import ProgressSink, human
from paddlejob.plainjob.data.scan import Advance, LineIndex, blocks, count_lines, next_line_start
from paddlejob.plainjob.data.scripts import place_config, stale_configs
from paddlejob.plainjob.data.writer import (
    ShardDraft,
    Writer,
    check_unchanged,
    make_parent,
    set_aside,
    whole,
    writing,
)

WRITERS = 4
"""The maximum number of shards to write in parallel; more would only make a disk seek."""
PLAN = "plan.json"


class SplitRequest(msgspec.Struct, frozen=True):
    """The options of the command line."""

    job: Path
    split_count: int
    inputs: tuple[Path, ...]
    shared: tuple[Path, ...] = ()
    training_names: tuple[str, ...] = TRAINING_NAMES
    config_directories: tuple[Path, ...] = ()
    by: By = By.LINES
    each: bool = False
    copy_shared: bool = False
    force: bool = False


class SplitReport(msgspec.Struct, frozen=True):
    manifest: Manifest
    written: tuple[int, ...]
    """The shards that this run wrote; the others already existed."""


def split(request: SplitRequest, progress: ProgressSink) -> SplitReport:
    """Split the inputs, unless that has already been done.

    Guarantees: if the process dies, each directory of the job is unchanged, absent, or complete, and
    manifest.json exists only if all of them belong to one split. A second run writes only the missing
    shards. Files that this command did not write are never removed.
    Raises PlainJobError.
    """
    job = request.job
    inputs = gather(request.inputs, request.shared, request.training_names, job)
    configs = stale_configs(request.config_directories, job, force=request.force)
    with _scratch(job) as scratch:
        reading = read_inputs(inputs, job, progress)
        key = SplitKey(
            request.split_count, request.by, request.each, reading.inputs.split, reading.inputs.shared
        )
        missing = missing_shards(job, key)
        # An earlier split may have had more shards.
        surplus = [shard.index for shard in shards_present(job) if shard.index >= key.split_count]
        outdated = [*missing, *surplus]
        check_replaceable(job, key, outdated, force=request.force)
        if outdated or configs:
            # The manifest must not exist while the split changes.
            (job / manifest.NAME).unlink(missing_ok=True)
            manifest.sync_directory(job)
        if missing:
            shards = plan_shards(key, reading.indexes, job / ".split", scratch, progress)
            _write_missing(request, key, {index: shards[index] for index in missing}, scratch, progress)
        for index in surplus:
            set_aside(job / str(index), scratch)
        for source, target in configs.items():
            place_config(source, target, scratch)
        finished = _publish(job, key, scratch)
    return SplitReport(finished, tuple(missing))


@contextlib.contextmanager
def _scratch(job: Path) -> Iterator[Path]:
    """Yield a directory for the unfinished shards of this run, and remove the directories of killed runs."""
    state = job / ".split"
    with writing(job):
        state.mkdir(parents=True, exist_ok=True)
        (job / "output").mkdir(exist_ok=True)
        with (state / "lock").open("w") as stream:
            if _lock(stream.fileno(), job):
                for leftover in state.glob("run-*"):
                    shutil.rmtree(leftover, ignore_errors=True)
            scratch = Path(tempfile.mkdtemp(prefix="run-", dir=state))
            try:
                yield scratch
            finally:
                shutil.rmtree(scratch, ignore_errors=True)


def _lock(descriptor: int, job: Path) -> bool:
    """Lock out other runs. Return False if the file system has no locks; then they may repeat work."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise errors.PlainJobError(
            f"another split is writing to {job}: wait for it, or stop it first"
        ) from error
    except OSError:
        return False
    return True


def check_replaceable(job: Path, key: SplitKey, outdated: Sequence[int], *, force: bool) -> None:
    """Refuse to replace foreign files, and another split unless forced. Raises DataError."""
    for index in outdated:
        for foreign in _foreign(job / str(index), manifest.read_shard(job, index)):
            raise errors.DataError(f"{foreign} was not written by this command: move it away")
    strange = [shard for shard in shards_present(job) if shard.split != key.digest]
    if strange and not force:
        raise errors.DataError(
            f"{job} holds another split, of other files or into {strange[0].split_count} shards: "
            "use --force to replace it, or another OUT_DIR"
        )


def _foreign(directory: Path, shard: ShardManifest | None) -> Iterator[Path]:
    """Yield the files in a shard's directory that do not belong to the shard."""
    if shard is None:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            yield directory
        return
    own = {directory / manifest.NAME, *(directory / "data" / entry.path for entry in shard.files)}
    for path in sorted(directory.rglob("*")):
        if path not in own and (path.is_symlink() or not path.is_dir()):
            yield path


def shards_present(job: Path) -> list[ShardManifest]:
    """Return the manifests of all finished shards, of any split."""
    numbers = sorted(int(entry.name) for entry in job.iterdir() if entry.name.isdecimal())
    return [shard for number in numbers if (shard := manifest.read_shard(job, number)) is not None]


def missing_shards(job: Path, key: SplitKey) -> list[int]:
    """Return the shards that are absent, of another split, or damaged."""
    mine = [shard for shard in shards_present(job) if shard.split == key.digest]
    good = {shard.index for shard in mine if manifest.is_whole(job, shard)}
    return [index for index in range(key.split_count) if index not in good]


def check_space(job: Path, needed: int) -> None:
    """Refuse a split that does not fit on the storage. Raises SpaceError."""
    facts = os.statvfs(job)
    free = facts.f_bavail * facts.f_frsize
    if needed > free:
        raise errors.SpaceError(
            f"the split needs {human(needed)} in {job}, and only {human(free)} are free there"
        )


def _write_missing(
    request: SplitRequest, key: SplitKey, shards: Mapping[int, Shard], scratch: Path, progress: ProgressSink
) -> None:
    own = sum(piece.size for shard in shards.values() for piece in shard)
    shared = sum(source.size for source in key.shared)
    check_space(request.job, own + shared * (len(shards) if request.copy_shared else 1))
    progress.begin("writing shards", own + shared)
    writer = Writer(progress.advance)
    try:
        common = _stage(writer, key.shared, scratch / "shared")

        def write(index: int, shard: Shard) -> None:
            draft = ShardDraft(scratch, index)
            try:
                entries = draft.fill(writer, shard)
                draft.share(scratch / "shared", common, copy=request.copy_shared)
                check_unchanged([piece.source for piece in shard])
                facts = ShardManifest(index, key.split_count, key.digest, (*entries, *common))
                draft.commit(request.job, facts)
            except BaseException:
                draft.discard()
                raise

        _write_in_parallel(writer, write, shards)
    finally:
        progress.end()


def _stage(writer: Writer, shared: Sequence[Source], directory: Path) -> tuple[FileEntry, ...]:
    """Copy shared files once; every shard then gets a hard link to that copy."""
    entries = []
    for source in shared:
        make_parent(directory / source.name)
        entries.append(writer.copy(whole(source), directory / source.name))
    check_unchanged(shared)
    return tuple(entries)


def _write_in_parallel(
    writer: Writer, write: Callable[[int, Shard], None], shards: Mapping[int, Shard]
) -> None:
    """Write all shards. The first failure stops the others and is raised."""
    with ThreadPoolExecutor(min(WRITERS, (os.cpu_count() or 1) + 1, len(shards))) as pool:
        running = [pool.submit(write, index, shard) for index, shard in shards.items()]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
        finally:
            if not all(future.done() for future in running):
                writer.stop()
                pool.shutdown(wait=True, cancel_futures=True)
    for future in done:
        future.result()


def _publish(job: Path, key: SplitKey, scratch: Path) -> Manifest:
    shards = tuple(shards_present(job))
    finished = Manifest(key.digest, key.split_count, key.by, key.sources, shards, key.shared)
    if manifest.read_job(job) != finished:
        sums = manifest.checksum_lines(shards).encode()
        manifest.replace_file(job / manifest.CHECKSUMS, sums, scratch)
        manifest.replace_file(job / manifest.NAME, manifest.encode(finished), scratch)
    (job / ".split" / PLAN).unlink(missing_ok=True)
    return finished


def verify(job: Path, progress: ProgressSink) -> Manifest:
    """Compare every file of a split with its checksum and return the manifest.

    Raises DataError for the first file that differs.
    """
    found = manifest.read_job(job)
    if found is None:
        raise errors.DataError(f"{job} has no {manifest.NAME}: the split is not finished, run it again")
    progress.begin("verifying", sum(shard.size for shard in found.shards))
    try:
        for shard in found.shards:
            for path, entry in manifest.data_files(job, shard):
                _verify_file(path, entry, progress.advance)
    finally:
        progress.end()
    return found


def _verify_file(path: Path, entry: FileEntry, advance: Advance) -> None:
    if not path.is_file() or path.stat().st_size != entry.size:
        raise errors.DataError(f"{path} is missing or not {entry.size} bytes long: split the data again")
    digest = hashlib.sha256()
    for block in blocks(Source(entry.path, str(path), entry.size), 0, entry.size):
        digest.update(block)
        advance(len(block))
    if digest.hexdigest() != entry.sha256:
        raise errors.DataError(f"{path} differs from its checksum in {manifest.NAME}: split the data again")


class SavedPlan(msgspec.Struct, frozen=True):
    """The plan of an unfinished split. A resumed split does not read the inputs again."""

    key: SplitKey
    shards: tuple[Shard, ...]


class Reading(msgspec.Struct, frozen=True):
    """Inputs with their checksums, and the line indexes of those that were read."""

    inputs: Inputs
    indexes: Mapping[str, LineIndex]


def read_inputs(inputs: Inputs, job: Path, progress: ProgressSink) -> Reading:
    """Read the inputs that are new or have changed since an earlier run. Raises DataError."""
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
        # The inputs may be mounted at another path this time.
        sources = {source.name: source for source in key.sources}
        return tuple(
            tuple(msgspec.structs.replace(piece, source=sources[piece.source.name]) for piece in shard)
            for shard in saved.shards
        )
    groups = [(source,) for source in key.sources] if key.each else [key.sources]
    if key.by is By.LINES:
        unread = [source for source in key.sources if source.name not in indexes]
        indexes = {**indexes, **(_count(unread, progress) if unread else {})}
        parts = [_equal_lines(group, key.split_count, indexes) for group in groups]
    else:
        parts = [_equal_bytes(group, key.split_count) for group in groups]
    shards = layout.merge(parts)
    manifest.replace_file(state / PLAN, msgspec.json.encode(SavedPlan(key, shards)), scratch)
    return shards


def _saved(path: Path) -> SavedPlan | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedPlan)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def _equal_lines(
    sources: Sequence[Source], shards: int, indexes: Mapping[str, LineIndex]
) -> tuple[Shard, ...]:
    totals = [indexes[source.name].lines for source in sources]
    layout.check_enough(sum(totals), shards, _name(sources))

    @cache
    def offset(source: int, line: int) -> int:
        return indexes[sources[source].name].offset_of(line)

    def piece(part: Range) -> Piece:
        start, stop = offset(part.source, part.start), offset(part.source, part.stop)
        return Piece(sources[part.source], start, stop, part.stop - part.start)

    parts = layout.ranges(totals, layout.cuts(totals, shards))
    return tuple(tuple(map(piece, shard)) for shard in parts)


def _equal_bytes(sources: Sequence[Source], shards: int) -> tuple[Shard, ...]:
    sizes = [source.size for source in sources]
    borders = [
        Cut(cut.source, next_line_start(sources[cut.source], cut.position))
        for cut in layout.cuts(sizes, shards)
    ]
    found = tuple(
        tuple(Piece(sources[part.source], part.start, part.stop) for part in shard)
        for shard in layout.ranges(sizes, borders)
    )
    layout.check_filled(found, _name(sources))
    return found


def _name(sources: Sequence[Source]) -> str:
    return sources[0].origin if len(sources) == 1 else f"the set of {len(sources)} files"
