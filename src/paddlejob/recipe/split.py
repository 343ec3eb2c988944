"""`paddlejob data split`: from files to `<job>/{0..N-1}/data`, safe to run again and to interrupt.

Flow: look at the inputs, see what is there already, find the cuts, write the missing shards, publish them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from paddlejob.recipe import errors, manifest
from paddlejob.recipe.config_copy import place_config
from paddlejob.recipe.manifest import FileEntry, Manifest, ShardManifest, SplitKey
from paddlejob.recipe.progress import ProgressSink, human
from paddlejob.recipe.split_cuts import plan_shards
from paddlejob.recipe.split_inputs import TRAINING_NAMES, gather
from paddlejob.recipe.split_plan import By, Shard, Source
from paddlejob.recipe.split_write import (
    ShardDraft,
    Writer,
    check_unchanged,
    copy_plain,
    link_or_copy,
    make_parent,
    whole,
    writing,
)

WRITERS = 4
"""Shards written at once at most; more would only make a disk seek."""


class SplitRequest(msgspec.Struct, frozen=True):
    """What the person asked for."""

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
    """What came of it."""

    manifest: Manifest
    written: tuple[int, ...]
    """The shards this run made; the others were there already."""


def split(request: SplitRequest, progress: ProgressSink) -> SplitReport:
    """Split the inputs, or find that it has been done.

    Guarantees: a shard directory is complete or absent, whenever the process dies; a second run writes only
    what is missing; nothing that this command did not write is ever removed.
    Raises RecipeError.
    """
    inputs = gather(request.inputs, request.shared, request.training_names, request.job)
    key = SplitKey(request.split_count, request.by, request.each, inputs.split, inputs.shared)
    with _scratch(request.job) as scratch:
        check_replaceable(request.job, key, force=request.force)
        missing = missing_shards(request.job, key)
        if missing:
            _write_missing(request, key, missing, scratch, progress)
        finished = _publish(request.job, key)
    for directory in request.config_directories:
        place_config(directory, request.job, force=request.force)
    return SplitReport(finished, tuple(missing))


@contextlib.contextmanager
def _scratch(job: Path) -> Iterator[Path]:
    """Yield a directory for unfinished shards, of this run alone, and remove what killed runs have left."""
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
    """Keep other runs out; return False where there are no locks, and they can only do double work."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise errors.RecipeError(
            f"another split is writing to {job}: wait for it, or stop it first"
        ) from error
    except OSError:
        return False
    return True


def check_replaceable(job: Path, key: SplitKey, *, force: bool) -> None:
    """Refuse to replace another split, unless forced, and foreign directories always. Raises DataError."""
    for index in range(key.split_count):
        if manifest.read_shard(job, index) is None and _has_content(job / str(index)):
            raise errors.DataError(f"{job / str(index)} was not written by this command: move it away")
    strange = [shard for shard in shards_present(job) if shard.split != key.digest]
    if strange and not force:
        raise errors.DataError(
            f"{job} holds another split, of other files or into {strange[0].split_count} shards: "
            "use --force to replace it, or another OUT_DIR"
        )


def _has_content(directory: Path) -> bool:
    return directory.exists() and (not directory.is_dir() or any(directory.iterdir()))


def shards_present(job: Path) -> list[ShardManifest]:
    """Return the manifests of all finished shards, of whichever split."""
    numbers = sorted(int(entry.name) for entry in job.iterdir() if entry.name.isdecimal())
    return [shard for number in numbers if (shard := manifest.read_shard(job, number)) is not None]


def missing_shards(job: Path, key: SplitKey) -> list[int]:
    """Return the shards that are not there, not of this split, or damaged."""
    mine = [shard for shard in shards_present(job) if shard.split == key.digest]
    good = {shard.index for shard in mine if manifest.is_whole(job, shard)}
    return [index for index in range(key.split_count) if index not in good]


def check_space(job: Path, needed: int) -> None:
    """Refuse to begin what cannot be finished. Raises SpaceError."""
    facts = os.statvfs(job)
    free = facts.f_bavail * facts.f_frsize
    if needed > free:
        raise errors.SpaceError(
            f"the split needs {human(needed)} in {job}, and only {human(free)} are free there"
        )


def _write_missing(
    request: SplitRequest, key: SplitKey, missing: Sequence[int], scratch: Path, progress: ProgressSink
) -> None:
    (request.job / manifest.NAME).unlink(missing_ok=True)
    shards = plan_shards(key, request.job / ".split", progress)
    own = sum(piece.size for index in missing for piece in shards[index])
    shared = sum(source.size for source in key.shared)
    check_space(request.job, own + shared * (len(missing) if request.copy_shared else 1))
    progress.begin("writing shards", own + shared)
    writer = Writer(progress.advance)
    try:
        common = _stage(writer, key.shared, scratch / "shared")
        give = copy_plain if request.copy_shared else link_or_copy
        crew = _ShardWriter(
            job=request.job, scratch=scratch, key=key, writer=writer, shared=common, give=give
        )
        crew.write_all({index: shards[index] for index in missing})
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


class _ShardWriter:
    """What the threads that write shards have in common."""

    def __init__(
        self,
        *,
        job: Path,
        scratch: Path,
        key: SplitKey,
        writer: Writer,
        shared: Sequence[FileEntry],
        give: Callable[[Path, Path], None],
    ) -> None:
        self._job, self._scratch, self._key = job, scratch, key
        self._writer, self._shared, self._give = writer, shared, give

    def write_all(self, shards: Mapping[int, Shard]) -> None:
        """Write shards side by side; the first failure ends them all and is raised."""
        with ThreadPoolExecutor(min(WRITERS, (os.cpu_count() or 1) + 1, len(shards))) as pool:
            running = [pool.submit(self._write, index, shard) for index, shard in shards.items()]
            try:
                done, _ = wait(running, return_when=FIRST_EXCEPTION)
            finally:
                if not all(future.done() for future in running):
                    self._writer.stop()
                    pool.shutdown(wait=True, cancel_futures=True)
        for future in done:
            future.result()

    def _write(self, index: int, shard: Shard) -> None:
        draft = ShardDraft(self._scratch, index)
        try:
            entries = draft.fill(self._writer, shard)
            draft.share(self._scratch / "shared", self._shared, self._give)
            check_unchanged([piece.source for piece in shard])
            facts = ShardManifest(index, self._key.split_count, self._key.digest, (*entries, *self._shared))
            draft.commit(self._job, facts)
        except BaseException:
            draft.discard()
            raise


def _publish(job: Path, key: SplitKey) -> Manifest:
    for shard in shards_present(job):
        if shard.index >= key.split_count:
            shutil.rmtree(job / str(shard.index))  # of an earlier split into more shards; --force was given
    shards = tuple(shards_present(job))
    finished = Manifest(key.digest, key.split_count, key.by, key.sources, shards)
    if manifest.read_job(job) != finished:
        manifest.write_whole(job / "SHA256SUMS", manifest.checksum_lines(shards).encode())
        manifest.write_whole(job / manifest.NAME, manifest.encode(finished))
    (job / ".split" / "plan.json").unlink(missing_ok=True)
    return finished
