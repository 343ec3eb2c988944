"""Copy and hash byte ranges in one pass, and publish complete shards only."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paddlejob.plainjob import errors
from paddlejob.plainjob.data import manifest
from paddlejob.plainjob.data.layout import Piece, Shard, Source
from paddlejob.plainjob.data.manifest import FileEntry, ShardManifest
from paddlejob.plainjob.data.scan import Advance, blocks, changed_error, read_error

SEND_EVERY = 16 << 20
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES}


class Stopped(Exception):  # noqa: N818 - not an error: another shard failed, or Ctrl-C
    """The split was stopped; the unfinished shard is discarded."""


class Writer:
    """Writes the files of one split. Thread-safe."""

    def __init__(self, advance: Advance, *, durable: bool = True) -> None:
        self._advance = advance
        self._durable = durable
        self._stop = threading.Event()

    def stop(self) -> None:
        """Make every running copy end soon with Stopped."""
        self._stop.set()

    def copy(self, piece: Piece, target: Path) -> FileEntry:
        """Copy one range to a new file, and flush it unless the writer is not durable.

        Guarantees: the checksum of the entry covers exactly the bytes passed to the file system.
        Raises DataError (input), SpaceError (output) or Stopped.
        """
        digest = hashlib.sha256()
        with writing(target), target.open("xb", buffering=0) as stream:
            output = _Output(stream.fileno(), durable=self._durable)
            for block in blocks(piece.source, piece.start, piece.stop):
                if self._stop.is_set():
                    raise Stopped
                output.write(block)
                digest.update(block)
                self._advance(len(block))
            output.finish()
        return FileEntry(
            path=piece.source.name, size=piece.size, sha256=digest.hexdigest(), lines=piece.lines
        )


class _Output:
    """A file that is flushed while it is being written.

    Otherwise the kernel would keep gigabytes in memory until the final fsync, and write them while the copy
    waits. posix_fadvise starts writing new pages and drops written ones: memory use stays constant, and a
    flushed copy is as fast as an unflushed one.
    """

    def __init__(self, descriptor: int, *, durable: bool) -> None:
        self._descriptor = descriptor
        self._durable = durable
        self._written = self._sent = 0

    def write(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            view = view[os.write(self._descriptor, view) :]
        self._written += len(block)
        if self._durable and self._written - self._sent >= SEND_EVERY:
            before = max(0, self._sent - SEND_EVERY)
            os.posix_fadvise(self._descriptor, before, self._written - before, os.POSIX_FADV_DONTNEED)
            self._sent = self._written

    def finish(self) -> None:
        if self._durable:
            os.fsync(self._descriptor)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn OSError into an error with a message for the user."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise errors.SpaceError(
                f"no space left while writing {target}: free some and run the same command again, "
                "finished shards are kept"
            ) from error
        raise errors.PlainJobError(f"cannot write {target}: {error.strerror or error}") from error


def whole(source: Source) -> Piece:
    """Return a whole file as a piece."""
    return Piece(source, 0, source.size)


def check_unchanged(sources: Sequence[Source]) -> None:
    """Refuse sources that changed since the split began. Raises DataError."""
    for source in sources:
        try:
            now = Source.of(Path(source.origin), source.name)
        except OSError as error:
            raise read_error(source.origin, error) from error
        if now.stamp != source.stamp:
            raise changed_error(source)


def _share_file(staged: Path, target: Path, *, copy: bool) -> None:
    """Give a shard a shared file, as a hard link if the storage supports it and no copy is wanted."""
    make_parent(target)
    try:
        if not copy:
            target.hardlink_to(staged)
            return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    with writing(target):
        shutil.copyfile(staged, target)


def make_parent(target: Path) -> None:
    """Create the parent directories of a file."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)


def set_aside(target: Path, scratch: Path) -> None:
    """Move a directory to the scratch directory with one rename, so that no part of it stays behind."""
    if target.is_symlink() or target.exists():
        target.rename(Path(tempfile.mkdtemp(prefix="old-", dir=scratch)) / target.name)


class ShardDraft:
    """A shard under a temporary name. `commit` moves data and manifest into place with one rename."""

    def __init__(self, scratch: Path, index: int) -> None:
        self.index = index
        self.directory = scratch / f"shard-{index}"
        with writing(self.directory):
            (self.directory / "data").mkdir(parents=True)

    def fill(self, writer: Writer, shard: Shard) -> tuple[FileEntry, ...]:
        """Copy the shard's own pieces."""
        entries = []
        for piece in shard:
            target = self.directory / "data" / piece.source.name
            make_parent(target)
            entries.append(writer.copy(piece, target))
        return tuple(entries)

    def share(self, staged: Path, entries: Sequence[FileEntry], *, copy: bool) -> None:
        """Add the shared files."""
        for entry in entries:
            _share_file(staged / entry.path, self.directory / "data" / entry.path, copy=copy)

    def commit(self, job: Path, facts: ShardManifest) -> None:
        """Publish the shard."""
        manifest.write_durably(self.directory / manifest.NAME, manifest.encode(facts))
        manifest.sync_directory(self.directory / "data")
        manifest.sync_directory(self.directory)
        set_aside(job / str(self.index), self.directory.parent)
        self.directory.rename(job / str(self.index))
        manifest.sync_directory(job)

    def discard(self) -> None:
        """Delete the draft."""
        shutil.rmtree(self.directory, ignore_errors=True)
