"""Writing: byte ranges copied and hashed in one pass, a shard that appears whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paddlejob.plainjob import errors
from paddlejob.plainjob.data import manifest
from paddlejob.plainjob.data.layout import Piece, Shard, Source
from paddlejob.plainjob.data.manifest import FileEntry, ShardManifest
from paddlejob.plainjob.data.scan import Advance, blocks, changed, unreadable

SEND_EVERY = 16 << 20
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES}


class Stopped(Exception):  # noqa: N818 - not an error: another shard failed, or Ctrl-C
    """The split is being given up; nothing of the shard in work is kept."""


class Writer:
    """Writes the files of one split. Safe to use from several threads."""

    def __init__(self, advance: Advance, *, durable: bool = True) -> None:
        self._advance = advance
        self._durable = durable
        self._stop = threading.Event()

    def stop(self) -> None:
        """Make every copy in work end soon with Stopped."""
        self._stop.set()

    def copy(self, piece: Piece, target: Path) -> FileEntry:
        """Copy one range to a new file, and onto the disk unless it is a scratch copy.

        Guarantees: what the entry's checksum covers is what was handed to the file system.
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
    """A file that is sent to the disk while it is still being written.

    The kernel would otherwise keep gigabytes in memory until the final fsync, and then write them while the
    copy stands still. The advice starts the writing of what is new and lets go of what has been written:
    memory stays flat, and a flushed copy takes no longer than an unflushed one.
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
    """Turn the file system's refusals into sentences."""
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
    """Return the piece that is all of a file."""
    return Piece(source, 0, source.size)


def check_unchanged(sources: Sequence[Source]) -> None:
    """Refuse sources that were written to since the split began. Raises DataError."""
    for source in sources:
        try:
            now = Source.of(Path(source.origin), source.name)
        except OSError as error:
            raise unreadable(source.origin, error) from error
        if now.stamp != source.stamp:
            raise changed(source)


def link_or_copy(staged: Path, target: Path) -> None:
    """Give a shard a file that all shards share, without a second copy where the storage knows hard links."""
    make_parent(target)
    try:
        target.hardlink_to(staged)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with writing(target):
            shutil.copyfile(staged, target)


def copy_plain(staged: Path, target: Path) -> None:
    """Give a shard its own copy of a shared file."""
    make_parent(target)
    with writing(target):
        shutil.copyfile(staged, target)


def make_parent(target: Path) -> None:
    """Make the directories above a file."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)


def set_aside(target: Path, scratch: Path) -> None:
    """Take a directory out of its place with one rename, so that no part of it is ever left there."""
    if target.is_symlink() or target.exists():
        target.rename(Path(tempfile.mkdtemp(prefix="old-", dir=scratch)) / target.name)


class ShardDraft:
    """A shard under a temporary name; `commit` moves data and manifest into place with one rename."""

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

    def share(self, staged: Path, entries: Sequence[FileEntry], give: Callable[[Path, Path], None]) -> None:
        """Add the files that every shard has."""
        for entry in entries:
            give(staged / entry.path, self.directory / "data" / entry.path)

    def commit(self, job: Path, facts: ShardManifest) -> None:
        """Publish the shard."""
        manifest.write_durably(self.directory / manifest.NAME, manifest.encode(facts))
        manifest.sync_directory(self.directory / "data")
        manifest.sync_directory(self.directory)
        set_aside(job / str(self.index), self.directory.parent)
        self.directory.rename(job / str(self.index))
        manifest.sync_directory(job)

    def discard(self) -> None:
        """Forget the draft."""
        shutil.rmtree(self.directory, ignore_errors=True)
