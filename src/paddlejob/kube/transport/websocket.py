"""WebSockets over aiohttp."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import aiohttp

from paddlejob.kube.errors import TransportError

_DATA = (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT)


class HttpWebSocket:
    """An open WebSocket; `attempt` translates errors and ends what waits when the transport is closed."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        attempt: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self.protocol = socket.protocol or ""
        self._socket = socket
        self._attempt = attempt

    async def send(self, message: bytes) -> None:
        """Send one message; waits while the server does not keep up."""
        async with self._attempt():
            await self._socket.send_bytes(message)

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield messages as they arrive; ends when the server closes."""
        while True:
            async with self._attempt():
                received = await self._socket.receive()
            if received.type is aiohttp.WSMsgType.ERROR:
                raise TransportError(f"the connection broke: {self._socket.exception()}")
            if received.type not in _DATA:
                return
            yield received.data.encode() if isinstance(received.data, str) else received.data
