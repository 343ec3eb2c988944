"""Control commands for a live run, such as `scale`: one line of JSON each way on a Unix socket."""

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
    """A request to the runner."""

    verb: str
    workers: int = 0


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The runner's reply: either a message or an error, in one sentence."""

    done: str = ""
    error: str = ""


def handle(runner: LocalRunner, command: Command) -> Reply:
    """Execute a command."""
    try:
        match command.verb:
            case "scale":
                runner.scale(command.workers)
                return Reply(done=f"scaling to {plural(command.workers, Role.WORKER)}")
            case "suspend":
                runner.suspend()
                return Reply(done="suspending")
            case "resume":
                runner.resume()
                return Reply(done="resuming")
            case "stop":
                runner.delete()
                return Reply(done="stopping; logs and files are kept (delete them with `paddlejob delete`)")
    except InputError as error:
        return Reply(error=str(error))
    return Reply(error=f"unknown command {command.verb}")


@contextlib.asynccontextmanager
async def serve_commands(runner: LocalRunner, run: RunDirectory) -> AsyncIterator[None]:
    """Accept control commands for a run."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                reply = handle(runner, msgspec.json.decode(await reader.readline(), type=Command))
            except msgspec.DecodeError as error:
                reply = Reply(error=f"invalid command: {error}")
            writer.write(msgspec.json.encode(reply) + b"\n")
            with contextlib.suppress(ConnectionError):
                await writer.drain()

    with _socket_path(run) as path:
        server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()
        run.control.unlink(missing_ok=True)


def send(run: RunDirectory, command: Command, timeout_seconds: float = 10.0) -> str:
    """Send a command to a live run and return the reply. Raises InputError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _socket_path(run) as path:
        connection.settimeout(timeout_seconds)
        try:
            connection.connect(path)
            connection.sendall(msgspec.json.encode(command) + b"\n")
            with connection.makefile("rb") as reader:
                reply = msgspec.json.decode(reader.readline(), type=Reply)
        except (OSError, msgspec.DecodeError) as error:
            raise InputError(f"{run.name} is not running; list runs with `paddlejob runs`") from error
    if reply.error:
        raise InputError(reply.error)
    return reply.done


@contextlib.contextmanager
def _socket_path(run: RunDirectory) -> Iterator[str]:
    """Yield a path of the socket within the kernel's limit of 108 bytes, even if the run's path is longer."""
    directory = os.open(run.path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{run.control.name}"
    finally:
        os.close(directory)
