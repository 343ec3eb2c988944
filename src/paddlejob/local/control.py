"""Commands for a live run from another terminal: one line of JSON each way, on a socket in its directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator

import msgspec

from paddlejob.api.v1 import Role
from paddlejob.core.status import plural
from paddlejob.local.errors import InputError
from paddlejob.local.runner import LocalRunner
from paddlejob.local.store.run_directory import RunDirectory


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """What to do."""

    verb: str
    workers: int = 0


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of it; an error is one sentence."""

    done: str = ""
    error: str = ""


def handle(runner: LocalRunner, order: Command) -> Reply:
    """Carry out a command."""
    try:
        match order.verb:
            case "scale":
                runner.scale(order.workers)
                return Reply(done=f"scaling to {plural(order.workers, Role.WORKER)}")
            case "suspend":
                runner.suspend()
                return Reply(done="suspending")
            case "resume":
                runner.resume()
                return Reply(done="resuming")
            case "stop":
                runner.delete()
                return Reply(done="stopping; logs and files are kept (remove them with `paddlejob rm`)")
    except InputError as error:
        return Reply(error=str(error))
    return Reply(error=f"unknown command {order.verb}")


@contextlib.asynccontextmanager
async def serving(runner: LocalRunner, run: RunDirectory) -> AsyncIterator[None]:
    """Serve commands for a world."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                answer = handle(runner, msgspec.json.decode(await reader.readline(), type=Command))
            except msgspec.DecodeError as error:
                answer = Reply(error=f"invalid command: {error}")
            writer.write(msgspec.json.encode(answer) + b"\n")
            with contextlib.suppress(ConnectionError):
                await writer.drain()

    with _short_path(run) as path:
        server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()
        run.control.unlink(missing_ok=True)


def send(run: RunDirectory, order: Command, timeout_seconds: float = 10.0) -> str:
    """Send a command to a live run and return its reply. Raises InputError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _short_path(run) as path:
        connection.settimeout(timeout_seconds)
        try:
            connection.connect(path)
            connection.sendall(msgspec.json.encode(order) + b"\n")
            with connection.makefile("rb") as reader:
                answer = msgspec.json.decode(reader.readline(), type=Reply)
        except (OSError, msgspec.DecodeError) as error:
            raise InputError(f"{run.name} is not running; `paddlejob runs` shows what is") from error
    if answer.error:
        raise InputError(answer.error)
    return answer.done


@contextlib.contextmanager
def _short_path(run: RunDirectory) -> Iterator[str]:
    """Yield a path of the socket that is short enough for the kernel's 108 bytes, wherever the run is."""
    directory = os.open(run.path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{run.control.name}"
    finally:
        os.close(directory)
