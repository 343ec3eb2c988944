"""Copy files into and out of a container as a tar stream. The container needs `tar`."""

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
"""Runs a command in the container."""


async def copy_from(run: Run, source: str, target: Path) -> Path:
    """Copy a file or directory of a container to a path, or into an existing directory; return its path.

    Nothing is written outside of the target, even if the container sends a malicious archive. Raises
    ClientError.
    """
    parent, name = posixpath.split(posixpath.normpath(source))
    place = target / name if target.is_dir() else target  # noqa: ASYNC240 - one fast call
    errors: list[bytes] = []
    with _pipe() as (reader, writer):
        extracting = asyncio.create_task(asyncio.to_thread(_extract, reader, name, place))
        try:
            words = ("tar", "cf", "-", "-C", parent or ".", name)
            code = await run(
                ContainerCommand(words=words, on_stdout=_pipe_writer(writer), on_stderr=errors.append)
            )
        finally:
            writer.close()
            await asyncio.gather(extracting, return_exceptions=True)
    if code:
        raise ClientError(f"cannot copy {source}: {_text(errors) or f'tar exited with code {code}'}")
    extracting.result()
    return place


async def copy_to(run: Run, source: Path, target: str) -> str:
    """Copy a file or directory to a path of a container, or into its directory; return its path.

    Raises ClientError.
    """
    if not source.exists():  # noqa: ASYNC240 - one fast call
        raise ClientError(f"{source} does not exist")
    ignore: list[bytes] = []
    is_directory = await run(
        ContainerCommand(words=("test", "-d", target), on_stdout=ignore.append, on_stderr=ignore.append)
    )
    own_name = source.name or source.absolute().name  # noqa: ASYNC240 - one fast call
    place = posixpath.join(target, own_name) if is_directory == 0 else posixpath.normpath(target)
    parent, name = posixpath.split(place)
    errors: list[bytes] = []
    with _pipe() as (reader, writer):
        packing = asyncio.create_task(asyncio.to_thread(_pack, source, name, writer))
        try:
            words = ("tar", "xmf", "-", "-C", parent or ".")
            command = ContainerCommand(
                words=words, stdin=_chunks(reader), on_stdout=errors.append, on_stderr=errors.append
            )
            code = await run(command)
        finally:
            # Unblock the packing thread.
            reader.close()
            await asyncio.gather(packing, return_exceptions=True)
    # A read error here is also the reason why the other tar failed.
    packing.result()
    if code:
        raise ClientError(f"cannot copy to {target}: {_text(errors) or f'tar exited with code {code}'}")
    return place


@contextmanager
def _pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    read, write = os.pipe()
    with os.fdopen(read, "rb", buffering=0) as reader, os.fdopen(write, "wb", buffering=0) as writer:
        yield reader, writer


def _pipe_writer(writer: IO[bytes]) -> Callable[[bytes], None]:
    """Return a function that writes to a pipe. A thread reads the other end."""

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[writer.write(view) :]

    return write


def _extract(reader: IO[bytes], name: str, place: Path) -> None:
    """Unpack a stream with the member `name` to `place`."""
    try:
        with tarfile.open(fileobj=reader, mode="r|") as archive:
            for member in archive:
                _unpack(archive, member, name, place)
    except tarfile.FilterError as error:
        raise ClientError(f"refused a member of the archive that the container sent: {error}") from error
    except tarfile.TarError as error:
        raise ClientError(f"the container sent an archive that cannot be read: {error}") from error
    except OSError as error:
        raise ClientError(f"cannot write to {place}: {error.strerror}") from error
    finally:
        # Unblock the writer.
        while reader.read(CHUNK_BYTES):
            pass


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, place: Path) -> None:
    """Unpack one member. Nothing is written outside of `place`."""
    inside = _inside(member.name, name)
    if inside == ".":
        _unpack_first(archive, member, place)
        return
    _remove_existing(member, place, inside)
    if not member.islnk():
        archive.extract(member.replace(name=inside, deep=False), place, filter="data")
        return
    linked = _inside(member.linkname, name)
    _refuse_links(member, place, linked)
    if not (place / linked).is_file():
        raise ClientError(f"the container sent {member.name}, a link to a file that it did not send")
    (place / inside).hardlink_to(place / linked)


def _unpack_first(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    """Unpack the requested file or directory itself; the content of a directory follows."""
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
    """Return a path of an archive relative to the requested one. Raises ClientError if it is outside."""
    inside = posixpath.relpath(posixpath.normpath(path), name)
    if inside == ".." or inside.startswith("../"):
        raise ClientError(f"the container sent {path}, which was not asked for")
    return inside


def _remove_existing(member: tarfile.TarInfo, root: Path, inside: str) -> None:
    """Remove the file that a member replaces, as tar does: writing to it could change a linked file."""
    _refuse_links(member, root, posixpath.dirname(inside))
    there = root / inside
    if there.is_symlink() or (there.is_file() and not member.isdir()):
        there.unlink()


def _refuse_links(member: tarfile.TarInfo, root: Path, inside: str) -> None:
    """Raise ClientError for a path through a symbolic link.

    tar never sends such a path. Checking the target of a link when it is created is not enough: a directory
    on the way to it can be replaced by another link later.
    """
    path = PurePosixPath(inside)
    if any((root / each).is_symlink() for each in (path, *path.parents)):
        raise ClientError(f"the container sent {member.name}, which goes through a symbolic link")


def _pack(source: Path, name: str, writer: IO[bytes]) -> None:
    try:
        with writer, tarfile.open(fileobj=writer, mode="w|") as archive:
            archive.add(source, arcname=name)
    except BrokenPipeError:
        # The other tar has ended, and its exit code is reported.
        return
    except OSError as error:
        raise ClientError(f"cannot read {error.filename or source}: {error.strerror or error}") from error


async def _chunks(reader: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(reader.read, CHUNK_BYTES):
        yield chunk


def _text(output: list[bytes]) -> str:
    return " ".join(b"".join(output).decode("utf-8", "replace").split())
