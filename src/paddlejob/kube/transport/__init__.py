"""The interface between the Kubernetes runtime and HTTP: one request, or one stream of bytes.

Code above it knows Kubernetes; code below it knows HTTP. The in-memory API server of `simkube` implements
the same two methods, so the whole runtime can be simulated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec


class Response(msgspec.Struct, frozen=True):
    """A complete response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    """Header names are in lower case."""


class Stream(Protocol):
    """A response that is still being sent, such as a watch or a followed log."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield bytes as they arrive; ends when the server closes.

        Raises TransportTimeoutError after the idle time given to `stream`, and TransportError when the
        connection breaks.
        """
        ...


class WebSocket(Protocol):
    """A two-way message connection, for example to a process in a pod."""

    @property
    def protocol(self) -> str:
        """The subprotocol that the server chose."""
        ...

    async def send(self, message: bytes) -> None:
        """Send one message. Raises TransportError."""
        ...

    def messages(self) -> AsyncIterator[bytes]:
        """Yield messages as they arrive; ends when the server closes. Raises TransportError."""
        ...


@runtime_checkable
class WebSocketTransport(Protocol):
    """A transport that supports WebSockets."""

    def websocket(
        self, path: str, *, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AbstractAsyncContextManager[WebSocket]:
        """Open a WebSocket with one of the subprotocols.

        Raises UpgradeRefusedError if the server refuses, TransportError if there is no response.
        """
        ...


class Transport(Protocol):
    """How requests reach an API server."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = 30.0,
    ) -> Response:
        """Send one request and return the whole response, for any status code.

        Raises TransportError or TransportTimeoutError if there is no response.
        """
        ...

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        idle_timeout_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Stream]:
        """Open a GET request and stream its response."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
