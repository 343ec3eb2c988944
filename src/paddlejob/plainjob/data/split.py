"""`paddlejob data split`: from files to `<job>/{0..N-1}/data`, safe to run again and to interrupt.

Flow: read the inputs, find what exists, plan the cuts, write the missing shards, publish the manifest.
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

from paddlejob.plainjob import errors
from paddlejob.plainjob.data import manifest
from paddlejob.plainjob.data.inputs import TRAINING_NAMES, gather
from paddlejob.plainjob.data.layout import By, Shard, Source
from paddlejob.plainjob.data.manifest import FileEntry, Manifest, ShardManifest, SplitKey
from paddlejob.plainjob.data.plan import PLAN, plan_shards, read_inputs
from paddlejob.plainjob.data.progress import ProgressSink, human
from paddlejob.plainjob.data.scripts import place_config, stale_configs
from paddlejob.plainjob.data.writer import (
    ShardDraft,
    Writer,
    check_unchanged,
    copy_plain,
    link_or_copy,
    make_parent,
    set_aside,
    whole,
    writing,
)

WRITERS = 4
"""How many shards to write in parallel at most; more would only make a disk seek."""


class SplitRequest(msgspec.Struct, frozen=True):
    """What the command line asks for."""

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
    """The result."""

    manifest: Manifest
    written: tuple[int, ...]
    """The shards that this run wrote; the others existed."""


def split(request: SplitRequest, progress: ProgressSink) -> SplitReport:
    """Split the inputs, or find that it has been done.

    Guarantees: whenever the process dies, a directory of the job is as it was, absent, or complete, and
    manifest.json is there only when all of them belong to one split; a second run writes only what is
    missing; nothing that this command did not write is ever removed.
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
        outdated = [*missing, *_surplus_shards(job, key)]
        check_replaceable(job, key, outdated, force=request.force)
        if outdated or configs:
            _unpublish(job)
        if missing:
            shards = plan_shards(key, reading.indexes, job / ".split", scratch, progress)
            _write_missing(request, key, {index: shards[index] for index in missing}, scratch, progress)
        for index in outdated[len(missing) :]:
            set_aside(job / str(index), scratch)  # of an earlier split into more shards; --force was given
        for source, target in configs.items():
            place_config(source, target, scratch)
        finished = _publish(job, key, scratch)
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
        raise errors.PlainJobError(
            f"another split is writing to {job}: wait for it, or stop it first"
        ) from error
    except OSError:
        return False
    return True


def check_replaceable(job: Path, key: SplitKey, outdated: Sequence[int], *, force: bool) -> None:
    """Refuse to replace another split, unless forced, and foreign files always. Raises DataError."""
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
    """Yield what a shard's directory holds besides the shard."""
    if shard is None:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            yield directory
        return
    own = {directory / manifest.NAME, *(directory / "data" / entry.path for entry in shard.files)}
    for path in sorted(directory.rglob("*")):
        if path not in own and (path.is_symlink() or not path.is_dir()):
            yield path


def shards_present(job: Path) -> list[ShardManifest]:
    """Return the manifests of all finished shards, of whichever split."""
    numbers = sorted(int(entry.name) for entry in job.iterdir() if entry.name.isdecimal())
    return [shard for number in numbers if (shard := manifest.read_shard(job, number)) is not None]


def missing_shards(job: Path, key: SplitKey) -> list[int]:
    """Return the shards that are not there, not of this split, or damaged."""
    mine = [shard for shard in shards_present(job) if shard.split == key.digest]
    good = {shard.index for shard in mine if manifest.is_whole(job, shard)}
    return [index for index in range(key.split_count) if index not in good]


def _surplus_shards(job: Path, key: SplitKey) -> list[int]:
    return [shard.index for shard in shards_present(job) if shard.index >= key.split_count]


def check_space(job: Path, needed: int) -> None:
    """Refuse to begin what cannot be finished. Raises SpaceError."""
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
        give = copy_plain if request.copy_shared else link_or_copy
        crew = _ShardWriter(
            job=request.job, scratch=scratch, key=key, writer=writer, shared=common, give=give
        )
        crew.write_all(shards)
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


def _unpublish(job: Path) -> None:
    """Say that the job is in work, before anything of it changes."""
    (job / manifest.NAME).unlink(missing_ok=True)
    manifest.sync_directory(job)


def _publish(job: Path, key: SplitKey, scratch: Path) -> Manifest:
    shards = tuple(shards_present(job))
    finished = Manifest(key.digest, key.split_count, key.by, key.sources, shards, key.shared)
    if manifest.read_job(job) != finished:
        sums = manifest.checksum_lines(shards).encode()
        manifest.replace_whole(job / manifest.CHECKSUMS, sums, scratch)
        manifest.replace_whole(job / manifest.NAME, manifest.encode(finished), scratch)
    (job / ".split" / PLAN).unlink(missing_ok=True)
    return finished
