"""Run a command in a container over a WebSocket.

Every message begins with the number of its channel. Protocol v5 can close standard input. With v4, a command
that reads its input to the end ends only with the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from paddlejob.client.errors import ClientError
from paddlejob.kube.client import Client
from paddlejob.kube.transport import WebSocket

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
CHUNK_BYTES = 1 << 15

Size = tuple[int, int]
"""Columns and lines of a terminal."""


class ContainerCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command with its input and output."""

    words: Sequence[str]
    on_stdout: Callable[[bytes], Awaitable[None] | None]
    """If it is asynchronous, the next output is received after it has returned."""
    on_stderr: Callable[[bytes], None]
    stdin: AsyncIterator[bytes] | None = None
    tty: bool = False
    sizes: AsyncIterator[Size] | None = None
    """The size of the terminal, now and after each change."""


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""
    reason: str = ""
    details: _Details = _Details()


async def execute(client: Client, namespace: str, pod: str, container: str, command: ContainerCommand) -> int:
    """Run a command to its end and return its exit code.

    Raises ClientError when it cannot be started, KubeError when the connection is refused or breaks.
    """
    streams = {
        "stdin": command.stdin is not None,
        "stdout": True,
        "stderr": not command.tty,
        "tty": command.tty,
    }
    query = [("container", container), *(("command", word) for word in command.words)]
    query += [(name, "true") for name, wanted in streams.items() if wanted]
    async with client.pod_websocket(namespace, pod, "exec", query, (V5, V4)) as socket:
        senders = [asyncio.create_task(_send_input(socket, command))]
        senders.append(asyncio.create_task(_send_sizes(socket, command)))
        try:
            return await _receive(socket, command)
        finally:
            for sender in senders:
                sender.cancel()
            await asyncio.wait(senders)


async def _receive(socket: WebSocket, command: ContainerCommand) -> int:
    status: _Status | None = None
    async for message in socket.messages():
        channel, data = (message[0], message[1:]) if message else (CLOSE, b"")
        match channel:
            case 1:
                if (taken := command.on_stdout(data)) is not None:
                    await taken
            case 2:
                command.on_stderr(data)
            case 3:
                status = msgspec.json.decode(data, type=_Status)
    if status is None:
        raise ClientError("the connection to the container was closed before the command had ended")
    return _exit_code(status)


def _exit_code(status: _Status) -> int:
    if status.status == "Success":
        return 0
    codes = [cause.message for cause in status.details.causes if cause.reason == "ExitCode"]
    if codes and codes[0].isdecimal():
        return int(codes[0])
    raise ClientError(status.message or "the command could not be run")


async def _send_input(socket: WebSocket, command: ContainerCommand) -> None:
    if command.stdin is None:
        return
    async for chunk in command.stdin:
        for start in range(0, len(chunk), CHUNK_BYTES):
            await socket.send(bytes((STDIN,)) + chunk[start : start + CHUNK_BYTES])
    if socket.protocol == V5:
        await socket.send(bytes((CLOSE, STDIN)))


async def _send_sizes(socket: WebSocket, command: ContainerCommand) -> None:
    if command.sizes is None:
        return
    async for columns, lines in command.sizes:
        size = msgspec.json.encode({"Width": columns, "Height": lines})
        await socket.send(bytes((RESIZE,)) + size)
