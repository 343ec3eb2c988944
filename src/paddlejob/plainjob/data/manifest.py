"""The files of a split: the manifest of the job, and the manifest of each shard.

<job>/manifest.json        the whole split; exists only if every shard exists
<job>/SHA256SUMS           the checksums for `sha256sum -c`
<job>/<i>/manifest.json    one shard; moved into place together with its data
<job>/<i>/data/...         the shard
<job>/output/              for logs and models
<job>/.split/              lock, plan and unfinished shards
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar

import msgspec

from paddlejob.plainjob import errors
from paddlejob.plainjob.data.layout import By, Source

VERSION = 2
NAME = "manifest.json"
CHECKSUMS = "SHA256SUMS"

AnyManifest = TypeVar("AnyManifest", bound="Manifest | ShardManifest")


class SplitKey(msgspec.Struct, frozen=True, rename="camel"):
    """The parameters of a split. Two splits with the same digest are the same split."""

    split_count: int
    by: By
    each: bool
    sources: tuple[Source, ...]
    shared: tuple[Source, ...]

    @property
    def digest(self) -> str:
        """A name for this split, derived from the content of the files, not their times or paths."""
        facts = [(file.name, file.size, file.sha256) for file in (*self.sources, *self.shared)]
        order = (VERSION, self.split_count, self.by.value, self.each, len(self.sources), facts)
        return hashlib.sha256(msgspec.json.encode(order)).hexdigest()


class FileEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file of a shard, relative to its data directory."""

    path: str
    size: int
    sha256: str
    lines: int | None = None

    def __post_init__(self) -> None:
        """Refuse an invalid path, or one that leads out of the shard."""
        path = PurePosixPath(self.path)
        if path.is_absolute() or ".." in path.parts or "\0" in self.path:
            raise ValueError(f"{self.path!r} is not a path inside of a shard")


class ShardManifest(msgspec.Struct, frozen=True, rename="camel"):
    """One complete shard."""

    index: int
    split_count: int
    split: str
    files: tuple[FileEntry, ...]
    version: int = VERSION

    @property
    def lines(self) -> int | None:
        """The training samples of this shard, None if they were not counted."""
        counted = [file.lines for file in self.files if file.lines is not None]
        return sum(counted) if counted else None

    @property
    def size(self) -> int:
        """The size of this shard in bytes."""
        return sum(file.size for file in self.files)


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """One complete split."""

    split: str
    split_count: int
    by: By
    sources: tuple[Source, ...]
    shards: tuple[ShardManifest, ...]
    shared: tuple[Source, ...] = ()
    version: int = VERSION


def read_job(job: Path) -> Manifest | None:
    """Return the manifest of a finished split, or None."""
    return _read(job / NAME, Manifest)


def read_shard(job: Path, index: int) -> ShardManifest | None:
    """Return the manifest of a finished shard, or None. Raises DataError."""
    path = job / str(index) / NAME
    found = _read(path, ShardManifest)
    if found is not None and found.index != index:
        raise errors.DataError(f"{path} is the manifest of shard {found.index}: move the directory back")
    return found


def _read(path: Path, kind: type[AnyManifest]) -> AnyManifest | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise errors.DataError(
            f"{path} is not a manifest of `paddlejob data split` ({error}): move it away"
        ) from error


def data_files(job: Path, shard: ShardManifest) -> list[tuple[Path, FileEntry]]:
    """Return the path and manifest entry of every file of a shard."""
    return [(job / str(shard.index) / "data" / entry.path, entry) for entry in shard.files]


def is_whole(job: Path, shard: ShardManifest) -> bool:
    """Return whether all files of a shard exist with their full size. Checksums are not compared."""
    for path, entry in data_files(job, shard):
        try:
            if path.stat().st_size != entry.size:
                return False
        except OSError:
            return False
    return True


def checksum_lines(shards: Sequence[ShardManifest]) -> str:
    """Return the text of SHA256SUMS."""
    return "".join(
        f"{entry.sha256}  {shard.index}/data/{entry.path}\n" for shard in shards for entry in shard.files
    )


def replace_file(path: Path, content: bytes, scratch: Path) -> None:
    """Replace a small file atomically; a crash leaves the unfinished file in `scratch`."""
    unfinished = scratch / f".{path.name}.{os.getpid()}"
    write_durably(unfinished, content)
    unfinished.replace(path)
    sync_directory(path.parent)


def write_durably(path: Path, content: bytes) -> None:
    """Write a small file and flush it to the disk."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def encode(value: Manifest | ShardManifest) -> bytes:
    """Return a manifest as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def sync_directory(directory: Path) -> None:
    """Flush a directory to the disk, if the file system supports that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
