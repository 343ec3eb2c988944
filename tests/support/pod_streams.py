"""What a kubelet does behind pods/exec and pods/portforward, with processes and ports of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import WSMsgType, web

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"


async def execute(request: web.Request, protocols: tuple[str, ...] = (V5, V4)) -> web.StreamResponse:
    """Run the command of a request, on a terminal if it asks for one."""
    socket = web.WebSocketResponse(protocols=protocols)
    await socket.prepare(request)
    words = request.query.getall("command")
    tty = "tty" in request.query
    try:
        if tty:
            await _on_terminal(socket, words)
        else:
            await _with_pipes(socket, words, has_stdin="stdin" in request.query)
    except FileNotFoundError:
        message = f'exec: "{words[0]}": executable file not found in $PATH'
        await _status(socket, {"status": "Failure", "message": message})
    await socket.close()
    return socket


async def _with_pipes(socket: web.WebSocketResponse, words: list[str], *, has_stdin: bool) -> None:
    stdin = PIPE if has_stdin else DEVNULL
    process = await asyncio.create_subprocess_exec(
        *words, stdin=stdin, stdout=PIPE, stderr=PIPE, start_new_session=True
    )

    async def copy(channel: int, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(4096):
            await socket.send_bytes(bytes((channel,)) + chunk)

    async def feed() -> None:
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[0] == 0:
                process.stdin.write(message.data[1:])
                with suppress(ConnectionError):  # a program need not read what it is sent
                    await process.stdin.drain()
            elif message.type is WSMsgType.BINARY and message.data == b"\xff\x00":
                process.stdin.close()

    async with _fed(process, feed()):
        await asyncio.gather(copy(1, process.stdout), copy(2, process.stderr), process.wait())
    await _exited(socket, process.returncode)


async def _on_terminal(socket: web.WebSocketResponse, words: list[str]) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)

    async def feed() -> None:
        async for message in socket:
            if message.data[0] == 0:
                os.write(ours, message.data[1:])
            elif message.data[0] == 4:
                size = json.loads(message.data[1:])
                await socket.send_bytes(b"\x01" + f"size {size['Width']}x{size['Height']}\r\n".encode())

    try:
        async with _fed(process, feed()):
            while chunk := await asyncio.to_thread(_read, ours):
                await socket.send_bytes(b"\x01" + chunk)
            await process.wait()
    finally:
        os.close(ours)
    await _exited(socket, process.returncode)


@asynccontextmanager
async def _fed(process: Process, feed: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Feed a process, which is killed with its children when its client is gone or this ends."""
    feeding = asyncio.create_task(feed)
    feeding.add_done_callback(lambda _: _kill(process))
    try:
        yield
    finally:
        feeding.cancel()
        await asyncio.wait({feeding})
        await process.communicate()  # reads to the end, so that no pipe outlives the event loop


def _kill(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""


async def _exited(socket: web.WebSocketResponse, code: int) -> None:
    if code == 0:
        await _status(socket, {"status": "Success"})
        return
    causes = [{"reason": "ExitCode", "message": str(code)}]
    body = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    await _status(socket, {**body, "message": f"command terminated with non-zero exit code: {code}"})


async def _status(socket: web.WebSocketResponse, status: dict) -> None:
    await socket.send_bytes(b"\x03" + json.dumps(status).encode())


async def forward_port(request: web.Request) -> web.StreamResponse:
    """Connect to a port of this machine, as if it were that of the pod."""
    socket = web.WebSocketResponse(protocols=(V4,))
    await socket.prepare(request)
    # A kubelet is asked for the port, the API server for ports.
    port = int(request.query.get("port") or request.query["ports"])
    for channel in (0, 1):
        await socket.send_bytes(bytes((channel,)) + port.to_bytes(2, "little"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        await socket.send_bytes(b"\x01" + f"error forwarding port {port}: {error.strerror}".encode())
        await socket.close()
        return socket

    async def send() -> None:
        while chunk := await reader.read(4096):
            await socket.send_bytes(b"\x00" + chunk)
        await socket.close()

    sending = asyncio.create_task(send())
    async for message in socket:
        writer.write(message.data[1:])
    writer.close()
    await asyncio.wait({sending})
    return socket
