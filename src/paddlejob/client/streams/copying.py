"""Copies files into and out of a container, as a tar stream; the container needs `tar`."""

from __future__ import annotations

import asyncio
import os
import posixpath
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
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
            await asyncio.wait({extracting})
    if code:
        raise ClientError(f"cannot copy {source}: {_words(said) or f'tar exited with code {code}'}")
    extracting.result()
    return place


async def copy_to(run: Run, source: Path, target: str) -> str:
    """Copy a file or directory to a path of a container, or into a directory of it; return where it is."""
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
            await asyncio.wait({packing})
    if code:
        raise ClientError(f"cannot copy to {target}: {_words(said) or f'tar exited with code {code}'}")
    packing.result()
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
                inside = posixpath.relpath(posixpath.normpath(member.name), name)
                if inside.startswith(".."):
                    raise ClientError(f"the container sent {member.name}, which was not asked for")
                renamed = member.replace(
                    name=posixpath.normpath(posixpath.join(place.name, inside)), deep=False
                )
                archive.extract(renamed, place.parent, filter="data")
    except tarfile.FilterError as error:
        raise ClientError(f"the container sent a path that leads out of {place}: {error}") from error
    except tarfile.ReadError:
        # Cut short: the exit code of the other tar says why.
        return
    except OSError as error:
        raise ClientError(f"cannot write to {place}: {error.strerror}") from error
    finally:
        # Whoever still writes must not wait for a reader.
        while reader.read(CHUNK_BYTES):
            pass


def _pack(source: Path, name: str, writer: IO[bytes]) -> None:
    try:
        with writer, tarfile.open(fileobj=writer, mode="w|") as archive:
            archive.add(source, arcname=name)
    except BrokenPipeError:
        # The other tar has ended; its exit code says why.
        return


async def _chunks(reader: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(reader.read, CHUNK_BYTES):
        yield chunk


def _words(said: list[bytes]) -> str:
    return " ".join(b"".join(said).decode("utf-8", "replace").split())
