"""Forward local ports to a pod, with one WebSocket for each connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from paddlejob.client.errors import ClientError, sentence
from paddlejob.kube.client import Client
from paddlejob.kube.errors import KubeError

V4 = "v4.channel.k8s.io"
DATA, ERROR = 0, 1
PORT_BYTES = 2
"""The first message on each channel repeats the port."""
CHUNK_BYTES = 1 << 16


class Forward(NamedTuple):
    """A local port and the port of the pod."""

    local: int
    """0 for any free port."""
    remote: int


def parse(text: str) -> Forward:
    """Parse `8040`, `8041:8040` or `:8040`. Raises ClientError."""
    local, colon, remote = text.rpartition(":")
    ports = (local or "0", remote) if colon else (remote, remote)
    if not all(each.isdecimal() and int(each) < 1 << 16 for each in ports) or not int(ports[1]):
        raise ClientError(f"{text}: write PORT or LOCAL:REMOTE, such as 8040 or 8041:8040")
    return Forward(int(ports[0]), int(ports[1]))


class Forwarder:
    """Listens on local ports, and forwards every connection to a pod."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        pod: str,
        on_error: Callable[[str], None],
    ) -> None:
        """`on_error` is called with the error of one connection; the others continue."""
        self._client = client
        self._namespace = namespace
        self._pod = pod
        self._on_error = on_error

    @contextlib.asynccontextmanager
    async def listening(self, forward: Forward, address: str = "127.0.0.1") -> AsyncIterator[int]:
        """Listen while the context is open, and yield the port. Raises ClientError if it is in use."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.closing(writer):
                try:
                    await self._forward(forward.remote, reader, writer)
                except (KubeError, ClientError) as error:
                    self._on_error(f"connection to port {forward.remote}: {sentence(error)}")
                except ConnectionError:
                    # The local client has disconnected.
                    return

        try:
            server = await asyncio.start_server(connected, address, forward.local)
        except OSError as error:
            raise ClientError(f"cannot listen on {address}:{forward.local}: {error.strerror}") from error
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _forward(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        query = [("ports", str(port))]
        async with self._client.pod_websocket(
            self._namespace, self._pod, "portforward", query, (V4,)
        ) as socket:

            async def send() -> None:
                while chunk := await reader.read(CHUNK_BYTES):
                    await socket.send(bytes((DATA,)) + chunk)

            sending = asyncio.create_task(send())
            try:
                await self._receive(socket.messages(), writer)
            finally:
                sending.cancel()
                await asyncio.wait({sending})

    async def _receive(self, messages: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
        begun: set[int] = set()
        async for message in messages:
            channel, data = message[0], message[1:]
            if channel not in begun:
                begun.add(channel)
                data = data[PORT_BYTES:]
            if channel == ERROR and data:
                raise ClientError(data.decode("utf-8", "replace").strip())
            if channel == DATA and data:
                writer.write(data)
                await writer.drain()
