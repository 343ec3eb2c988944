"""Copies files into and out of a container, as a tar stream; the container needs `tar`."""

from __future__ import annotations

import asyncio
import os
import posixpath
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from paddlejob.client.errors import ClientError
from paddlejob.client.streams.execution import CHUNK_BYTES, ContainerCommand

Run = Callable[[ContainerCommand], Awaitable[int]]
"""Runs a command in the container that is meant."""


async def copy_from(run: Run, source: str, target: Path) -> Path:
    """Copy a file or directory of a container to a path, or into an existing directory; return where it is.

    Nothing is written outside of the target, whatever the container sends. Raises ClientError.
    """
    parent, name = posixpath.split(posixpath.normpath(source))
    place = target / name if target.is_dir() else target  # noqa: ASYNC240 - one look
    said: list[bytes] = []
    with _pipe() as (reader, writer):
        extracting = asyncio.create_task(asyncio.to_thread(_extract, reader, name, place))
        try:
            words = ("tar", "cf", "-", "-C", parent or ".", name)
            code = await run(ContainerCommand(words=words, on_stdout=_writes(writer), on_stderr=said.append))
        finally:
            writer.close()
            await asyncio.gather(extracting, return_exceptions=True)
    if code:
        raise ClientError(f"cannot copy {source}: {_words(said) or f'tar exited with code {code}'}")
    extracting.result()
    return place


async def copy_to(run: Run, source: Path, target: str) -> str:
    """Copy a file or directory to a path of a container, or into a directory of it; return where it is.

    Raises ClientError.
    """
    if not source.exists():  # noqa: ASYNC240 - one look
        raise ClientError(f"{source} does not exist")
    ignore: list[bytes] = []
    is_directory = await run(
        ContainerCommand(words=("test", "-d", target), on_stdout=ignore.append, on_stderr=ignore.append)
    )
    own_name = source.name or source.absolute().name  # noqa: ASYNC240 - one look
    place = posixpath.join(target, own_name) if is_directory == 0 else posixpath.normpath(target)
    parent, name = posixpath.split(place)
    said: list[bytes] = []
    with _pipe() as (reader, writer):
        packing = asyncio.create_task(asyncio.to_thread(_pack, source, name, writer))
        try:
            words = ("tar", "xmf", "-", "-C", parent or ".")
            command = ContainerCommand(
                words=words, stdin=_chunks(reader), on_stdout=said.append, on_stderr=said.append
            )
            code = await run(command)
        finally:
            # What still packs then finds nobody who reads.
            reader.close()
            await asyncio.gather(packing, return_exceptions=True)
    # What could not be read is why the other tar failed, too.
    packing.result()
    if code:
        raise ClientError(f"cannot copy to {target}: {_words(said) or f'tar exited with code {code}'}")
    return place


@contextmanager
def _pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    read, write = os.pipe()
    with os.fdopen(read, "rb", buffering=0) as reader, os.fdopen(write, "wb", buffering=0) as writer:
        yield reader, writer


def _writes(writer: IO[bytes]) -> Callable[[bytes], None]:
    """Return what writes to a pipe whose other end is read by a thread."""

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[writer.write(view) :]

    return write


def _extract(reader: IO[bytes], name: str, place: Path) -> None:
    """Unpack a stream so that its only member, and all that is in it, is at a place."""
    try:
        with tarfile.open(fileobj=reader, mode="r|") as archive:
            for member in archive:
                _unpack(archive, member, name, place)
    except tarfile.FilterError as error:
        raise ClientError(f"refusing a member of the archive that the container sent: {error}") from error
    except tarfile.TarError as error:
        raise ClientError(f"the container sent an archive that cannot be read: {error}") from error
    except OSError as error:
        raise ClientError(f"cannot write to {place}: {error.strerror}") from error
    finally:
        # Whoever still writes must not wait for a reader.
        while reader.read(CHUNK_BYTES):
            pass


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, place: Path) -> None:
    """Unpack a member of what is asked for, with the place as the border that nothing crosses."""
    inside = _inside(member.name, name)
    if inside == ".":
        _unpack_first(archive, member, place)
        return
    _make_way(member, place, inside)
    if not member.islnk():
        archive.extract(member.replace(name=inside, deep=False), place, filter="data")
        return
    linked = _inside(member.linkname, name)
    _refuse_links(member, place, linked)
    if not (place / linked).is_file():
        raise ClientError(f"the container sent {member.name}, a link to a file that it did not send")
    (place / inside).hardlink_to(place / linked)


def _unpack_first(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    """Unpack what was asked for by name: a directory, with its content to follow, or a file."""
    if place.is_symlink():
        raise ClientError(f"{place} is a symbolic link: remove it, or choose another target")
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
    elif member.isreg():
        archive.extract(member.replace(name=place.name, deep=False), place.parent, filter="data")
    elif member.issym():
        raise ClientError(f"{member.name} is a symbolic link: copy {member.linkname}, which it leads to")
    else:
        raise ClientError(f"{member.name} is neither a file nor a directory")


def _inside(path: str, name: str) -> str:
    """Return a path of an archive as one below what was asked for."""
    inside = posixpath.relpath(posixpath.normpath(path), name)
    if inside == ".." or inside.startswith("../"):
        raise ClientError(f"the container sent {path}, which was not asked for")
    return inside


def _make_way(member: tarfile.TarInfo, root: Path, inside: str) -> None:
    """Remove what a member replaces, as tar does: to write into it may change what it is a link to."""
    _refuse_links(member, root, posixpath.dirname(inside))
    there = root / inside
    if there.is_symlink() or (there.is_file() and not member.isdir()):
        there.unlink()


def _refuse_links(member: tarfile.TarInfo, root: Path, inside: str) -> None:
    """Raise ClientError where a path goes through a symbolic link, wherever it leads to.

    No tar sends such a path. That a link does not leave the root when it is made is not enough: what it leads
    through can still be replaced by another link.
    """
    path = PurePosixPath(inside)
    if any((root / each).is_symlink() for each in (path, *path.parents)):
        raise ClientError(f"the container sent {member.name}, which goes through a symbolic link")


def _pack(source: Path, name: str, writer: IO[bytes]) -> None:
    try:
        with writer, tarfile.open(fileobj=writer, mode="w|") as archive:
            archive.add(source, arcname=name)
    except BrokenPipeError:
        # The other tar has ended; its exit code says why.
        return
    except OSError as error:
        raise ClientError(f"cannot read {error.filename or source}: {error.strerror or error}") from error


async def _chunks(reader: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(reader.read, CHUNK_BYTES):
        yield chunk


def _words(said: list[bytes]) -> str:
    return " ".join(b"".join(said).decode("utf-8", "replace").split())
