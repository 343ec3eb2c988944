"""The transport over aiohttp: credentials, timeouts and error messages.

docs/decisions/0010-aiohttp.md has the reasons and the measurements. This module relies on some internals of
aiohttp; tests/kube/test_aiohttp_internals.py fails if they change.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import lru_cache, partial
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from aiohttp.http import HttpProcessingError
from yarl import URL

from paddlejob.kube.errors import (
    ResponseTooLargeError,
    TransportError,
    TransportTimeoutError,
    UpgradeRefusedError,
)
from paddlejob.kube.transport import Response, Stream, WebSocket
from paddlejob.kube.transport.auth import Authenticator, Credentials, authenticator_for
from paddlejob.kube.transport.cluster import ClusterConfig
from paddlejob.kube.transport.endpoint import Endpoint, Headers
from paddlejob.kube.transport.fair_limiter import CONNECTION_LIMIT, RequestLimiter
from paddlejob.kube.transport.tls import ClientCertificate, tls_context

RESPONSE_SIZE_LIMIT = 128 << 20
"""Far above any page of a list, before and after decompression; a larger one is a mistake or an attack."""
_FAILURES = (aiohttp.ClientError, HttpProcessingError, OSError, ValueError, RuntimeError)
KEEP_ALIVE_SECONDS = 30.0
"""Shorter than the timeouts of servers and load balancers, so that no write meets a closing connection."""
_HEADER_LIMIT = 512
"""An API server sends one Warning header for each unknown or deprecated field, up to 4 KiB of text."""
_LIVENESS_CHECK_SECONDS = 5.0
_LARGE_BODY = 1 << 20
_MAX_CALLBACK_ROUNDS = 100
_DEAD_PEER_SECONDS = 30
_KEEP_ALIVE_PROBES = {
    "TCP_KEEPIDLE": _DEAD_PEER_SECONDS // 2,
    "TCP_KEEPINTVL": _DEAD_PEER_SECONDS // 6,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": _DEAD_PEER_SECONDS * 1000,
}
"""Detects a dead peer on every connection, including one that only receives."""
_WEBSOCKET_DATA = (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT)


class HttpTransport:
    """Connects to one API server over HTTP/1.1 with a pool of connections.

    Guarantees that every error of a request is a TransportError, and that a 401 is retried once if there are
    new credentials. Redirects are not followed, because the credentials are for this server only.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        authenticator: Authenticator | None = None,
        connection_limit: int = CONNECTION_LIMIT,
        user_agent: str = "paddlejob",
        connect_timeout_seconds: float = 10.0,
        stream_open_timeout_seconds: float = 30.0,
        response_size_limit: int = RESPONSE_SIZE_LIMIT,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Check the configuration; connections are opened on first use.

        The server uses `user_agent`, up to its first slash, as the field manager of our writes.
        `tls` replaces a new context for requests without a client certificate.
        `connection_limit` applies to namespaced requests, which share the connections fairly. Streams and
        cluster-scoped requests use additional connections.
        Raises ConfigError if an address or the certificate authority cannot be used.
        """
        self._config = config
        self._authenticator = authenticator or authenticator_for(config.user)
        self._user_agent = user_agent
        self._connect_timeout_seconds = connect_timeout_seconds
        self._stream_open_timeout_seconds = stream_open_timeout_seconds
        self._response_size_limit = response_size_limit
        self._endpoint = Endpoint(config)
        self._tls: tuple[ClientCertificate | None, ssl.SSLContext] = (None, tls or tls_context(config))
        self._session: aiohttp.ClientSession | None = None
        self._limiter = RequestLimiter(connection_limit)
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._attempts = _Attempts(self._endpoint)

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
        headers = [("Accept", "application/json"), ("Accept-Encoding", "gzip")]
        if body is not None:
            headers.append(("Content-Type", content_type))
        call = _Call(method, self._url(path, query), headers, timeout_seconds, body)
        credentials = await self._authenticator.credentials()
        response = await self._exchange(call, credentials)
        if response.status == 401 and await self._authenticator.renew(credentials):
            return await self._exchange(call, await self._authenticator.credentials())
        return response

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        idle_timeout_seconds: float | None = None,
    ) -> AsyncIterator[Stream]:
        """Open a GET request and stream its response, which must start within the open timeout."""
        # With compression, a proxy could hold back an event in a buffer.
        headers = [("Accept", "application/json, */*"), ("Accept-Encoding", "identity")]
        call = _Call("GET", self._url(path, query), headers, self._stream_open_timeout_seconds)
        credentials = await self._authenticator.credentials()
        response = await self._open(call, credentials)
        try:
            if response.status == 401 and await self._authenticator.renew(credentials):
                _abort(response)
                response = await self._open(call, await self._authenticator.credentials())
            silence = f"{self._endpoint.server} sent nothing for {idle_timeout_seconds or 0:g} seconds"
            yield _HttpStream(response, partial(self._attempt, idle_timeout_seconds, silence))
        finally:
            _abort(response)

    @asynccontextmanager
    async def websocket(
        self, path: str, *, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AsyncIterator[WebSocket]:
        url = self._url(path, query)
        credentials = await self._authenticator.credentials()
        try:
            socket = await self._upgrade(url, protocols, credentials)
        except UpgradeRefusedError as error:
            if error.status != 401 or not await self._authenticator.renew(credentials):
                raise
            socket = await self._upgrade(url, protocols, await self._authenticator.credentials())
        try:
            yield _HttpWebSocket(socket, partial(self._attempt, None))
        finally:
            async with self._attempt(self._connect_timeout_seconds):
                await socket.close()

    async def _upgrade(
        self, url: URL, protocols: Sequence[str], credentials: Credentials
    ) -> aiohttp.ClientWebSocketResponse:
        async with self._attempt(self._stream_open_timeout_seconds):
            try:
                socket: aiohttp.ClientWebSocketResponse = await self._open_session().ws_connect(
                    url, protocols=protocols, max_msg_size=0, **self._options(credentials)
                )
            except aiohttp.WSServerHandshakeError as error:
                message = f"{self._endpoint.server} refused to open a WebSocket: HTTP {error.status}"
                raise UpgradeRefusedError(error.status, message) from None
            return socket

    async def close(self) -> None:
        """Close all connections; requests in flight fail with TransportError."""
        self._attempts.end()
        await _run_callbacks_until(lambda: not self._attempts.deadlines)
        if self._session is not None:
            await self._session.close()
        # aiohttp forgets a dropped TLS connection before its shutdown is complete.
        for sock in self._sockets:
            with suppress(OSError):  # closed or never connected
                sock.shutdown(socket.SHUT_RDWR)
        await _run_callbacks_until(lambda: all(sock.fileno() < 0 for sock in self._sockets))

    def _url(self, path: str, query: Mapping[str, str] | Sequence[tuple[str, str]] | None) -> URL:
        pairs = query.items() if isinstance(query, Mapping) else query
        target = f"{path}?{_encode_query(tuple(pairs))}" if pairs else path
        if " " in target or not target.isascii() or not target.isprintable():
            raise TransportError(
                f"invalid path {target!r}: percent-encode everything but letters, digits and -._~/"
            )
        return URL(f"{self._endpoint.server}{target}", encoded=True)

    async def _exchange(self, call: _Call, credentials: Credentials) -> Response:
        path = call.url.raw_path
        # The timeout starts after this wait, so slow requests of others do not make this one fail.
        async with self._attempt(None):
            await self._limiter.enter(path)
        try:
            async with self._attempt(call.timeout_seconds), await self._send(call, credentials) as response:
                return Response(response.status, await self._body(response), response.headers)
        finally:
            self._limiter.leave(path)

    async def _open(self, call: _Call, credentials: Credentials) -> aiohttp.ClientResponse:
        async with self._attempt(call.timeout_seconds):
            return await self._send(call, credentials)

    async def _send(self, call: _Call, credentials: Credentials) -> aiohttp.ClientResponse:
        """Send the request and return when the response starts."""
        body = call.body
        return await self._open_session().request(
            call.method,
            call.url,
            # aiohttp writes bytes in one piece, but a file in parts.
            data=io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body,
            allow_redirects=False,
            **self._options(credentials, call.headers),
        )

    def _options(self, credentials: Credentials, headers: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Return the common options of all requests: headers, TLS and proxy."""
        all_headers = [*headers, *self._endpoint.headers]
        if authorization := credentials.authorization or self._endpoint.authorization:
            all_headers.append(("Authorization", authorization))
        return {
            "headers": all_headers,
            "ssl": self._context(credentials.client_certificate),
            "server_hostname": self._config.tls_server_name or None,
            "proxy": self._endpoint.proxy or None,
            "proxy_headers": self._endpoint.proxy_headers,
        }

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            return await self._read(response.content)
        except BaseException:
            _abort(response)
            raise

    async def _read(self, content: aiohttp.StreamReader) -> bytes:
        """Return the whole body; aiohttp unpacks a compressed one in small parts, as they are taken."""
        parts, size = [], 0
        async for part in content.iter_any():
            parts.append(part)
            size += len(part)
            if size > self._response_size_limit:
                limit = self._response_size_limit >> 20
                raise ResponseTooLargeError(
                    f"{self._endpoint.server} sent a response of more than {limit} MiB"
                )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _attempt(self, timeout_seconds: float | None, silence: str = "") -> _Attempt:
        """Bound the time of an attempt, end it when the transport is closed, and translate its errors."""
        return _Attempt(self._attempts, timeout_seconds, silence)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = _Connector(
                # RequestLimiter limits the requests, but not the streams.
                limit=0,
                keepalive_timeout=KEEP_ALIVE_SECONDS,
                socket_factory=self._new_socket,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": self._user_agent},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_seconds),
                max_headers=_HEADER_LIMIT,
            )
            # aiohttp would repeat PUT and DELETE; the operator reads the object before it repeats a write.
            self._session._retry_connection = False  # noqa: SLF001
        return self._session

    def _new_socket(self, address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, *_ = address
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE_PROBES.items():
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._sockets.add(sock)
        return sock

    def _context(self, certificate: ClientCertificate | None) -> ssl.SSLContext:
        """Return the context for a certificate; the pool does not share connections between contexts."""
        current, context = self._tls
        if current != certificate:
            context = tls_context(self._config, certificate)
            self._tls = (certificate, context)
        return context


class _Attempts:
    """The requests in flight."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.deadlines: set[asyncio.Timeout] = set()
        self.closed = False

    def end(self) -> None:
        """Make all current and later requests fail."""
        self.closed = True
        for deadline in self.deadlines:
            if not deadline.expired():
                deadline.reschedule(asyncio.get_running_loop().time())

    def error_from(self, error: BaseException | None, silence: str) -> TransportError | None:
        """Translate an error of aiohttp; return None for other exceptions."""
        if not isinstance(error, _FAILURES):
            return None
        if self.closed:
            return self.closed_error()
        if isinstance(error, TimeoutError):
            return TransportTimeoutError(silence or self.endpoint.timeout_message(error))
        return TransportError(self.endpoint.error_message(error))

    def closed_error(self) -> TransportError:
        return TransportError(f"the transport to {self.endpoint.server} is closed")


class _Attempt:
    """One request in flight. Not a generator, because asyncio tracks those at a cost for every request."""

    def __init__(self, attempts: _Attempts, timeout_seconds: float | None, silence: str) -> None:
        self._attempts = attempts
        self._deadline = asyncio.timeout(timeout_seconds)
        self._silence = silence

    async def __aenter__(self) -> None:
        if self._attempts.closed:
            raise self._attempts.closed_error()
        await self._deadline.__aenter__()
        self._attempts.deadlines.add(self._deadline)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._attempts.deadlines.discard(self._deadline)
        try:
            await self._deadline.__aexit__(kind, error, trace)
        except TimeoutError as late:
            error = late
        # Without the cause: aiohttp's errors contain the request headers, including the token.
        if (translated := self._attempts.error_from(error, self._silence)) is not None:
            raise translated from None


class _Connector(aiohttp.TCPConnector):
    """Drops an idle connection with unexpected data from the server.

    aiohttp would read the data as the response to the next request.
    """

    async def _get(self, *details: Any) -> Any:
        connection = await super()._get(*details)
        while connection is not None and connection.protocol is not None and connection.protocol.should_close:
            connection.close()
            connection = await super()._get(*details)
        return connection


class _HttpStream:
    def __init__(
        self, response: aiohttp.ClientResponse, attempt: Callable[[], AbstractAsyncContextManager[None]]
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._attempt = attempt

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._next():
            yield chunk

    async def _next(self) -> bytes:
        async with self._attempt():
            while True:
                try:
                    async with asyncio.timeout(_LIVENESS_CHECK_SECONDS):
                        return await self._response.content.readany()
                except TimeoutError:
                    self._check_connection()

    def _check_connection(self) -> None:
        """Raise an error if the connection is gone; aiohttp does not report an invalid chunk."""
        connection = self._response.connection
        if connection is None or connection.transport is None or connection.transport.is_closing():
            raise aiohttp.ClientPayloadError


class _HttpWebSocket:
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
        while True:
            async with self._attempt():
                received = await self._socket.receive()
            if received.type is aiohttp.WSMsgType.ERROR:
                raise TransportError(f"the connection broke: {self._socket.exception()}")
            if received.type not in _WEBSOCKET_DATA:
                return
            yield received.data.encode() if isinstance(received.data, str) else received.data


class _Call(msgspec.Struct, frozen=True):
    """A request without its credentials."""

    method: str
    url: URL
    headers: Headers
    timeout_seconds: float | None
    """Until the end of the response, or for a stream until its start."""
    body: bytes | None = None


@lru_cache
def _encode_query(query: tuple[tuple[str, str], ...]) -> str:
    return urlencode(query, quote_via=quote)


def _abort(response: aiohttp.ClientResponse) -> None:
    """Drop a connection immediately; a TLS shutdown would keep it open until the server responds."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


async def _run_callbacks_until(condition: Callable[[], bool]) -> None:
    """Let pending callbacks run until the condition holds; none of them waits for the server."""
    for _ in range(_MAX_CALLBACK_ROUNDS):
        if condition():
            return
        await asyncio.sleep(0)
