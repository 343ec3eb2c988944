"""The transport over aiohttp: credentials, time limits, and messages for what goes wrong.

docs/decisions/0010-aiohttp.md says why, and what was measured.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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
from paddlejob.kube.transport.fair_limiter import CONNECTION_LIMIT, RequestLimiter
from paddlejob.kube.transport.route import Headers, Route
from paddlejob.kube.transport.tls import ClientCertificate, tls_context
from paddlejob.kube.transport.websocket import HttpWebSocket

RESPONSE_SIZE_LIMIT = 128 << 20
"""Far above any page of a list: what is larger is a mistake or an attack, compressed or not."""
_FAILURES = (aiohttp.ClientError, HttpProcessingError, OSError, ValueError, RuntimeError)
KEEP_ALIVE_SECONDS = 30.0
"""Shorter than servers and load balancers wait, so that no write goes into a connection just being closed."""
_HEADER_LIMIT = 512
"""An API server sends one Warning header for each unknown or deprecated field, up to 4 KiB of text."""
_LIVENESS_CHECK_SECONDS = 5.0
_LARGE_BODY = 1 << 20
_DEAD_PEER_SECONDS = 30
_KEEP_ALIVE_PROBES = {
    "TCP_KEEPIDLE": _DEAD_PEER_SECONDS // 2,
    "TCP_KEEPINTVL": _DEAD_PEER_SECONDS // 6,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": _DEAD_PEER_SECONDS * 1000,
}
"""A peer that vanished silently is noticed on every connection, also on one that only listens."""


class HttpTransport:
    """Reaches one API server over HTTP/1.1 with a pool of connections.

    Guarantees that whatever it raises is a TransportError, and that a 401 is tried again once when there are
    better credentials by then. Redirects are not followed: credentials are for this server and no other.
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
        """Check the configuration; connections are made when first needed.

        The server names us after `user_agent`, up to its first slash, as the manager of the fields we write.
        `tls` is used instead of a new context for requests without a client certificate.
        `connection_limit` is for requests in namespaces, which share the connections fairly. Streams and
        requests in no namespace use further connections.
        Raises ConfigError when an address or the certificate authority cannot be used.
        """
        self._config = config
        self._authenticator = authenticator or authenticator_for(config.user)
        self._user_agent = user_agent
        self._connect_timeout_seconds = connect_timeout_seconds
        self._stream_open_timeout_seconds = stream_open_timeout_seconds
        self._response_size_limit = response_size_limit
        self._route = Route(config)
        self._tls: tuple[ClientCertificate | None, ssl.SSLContext] = (None, tls or tls_context(config))
        self._session: aiohttp.ClientSession | None = None
        self._limiter = RequestLimiter(connection_limit)
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._attempts = _Attempts(self._route)

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
        """Send one request and return the whole response, whatever its status code."""
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
        """Open a GET whose response is read as it arrives; it has to start within the open timeout."""
        # Compressed, an event could sit in a buffer on the way.
        headers = [("Accept", "application/json, */*"), ("Accept-Encoding", "identity")]
        call = _Call("GET", self._url(path, query), headers, self._stream_open_timeout_seconds)
        credentials = await self._authenticator.credentials()
        response = await self._open(call, credentials)
        try:
            if response.status == 401 and await self._authenticator.renew(credentials):
                _abort(response)
                response = await self._open(call, await self._authenticator.credentials())
            silence = f"{self._route.server} sent nothing for {idle_timeout_seconds or 0:g} seconds"
            yield _HttpStream(response, partial(self._attempt, idle_timeout_seconds, silence))
        finally:
            _abort(response)

    @asynccontextmanager
    async def websocket(
        self, path: str, *, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AsyncIterator[WebSocket]:
        """Open a WebSocket that speaks one of the subprotocols."""
        url = self._url(path, query)
        credentials = await self._authenticator.credentials()
        try:
            socket = await self._upgrade(url, protocols, credentials)
        except UpgradeRefusedError as error:
            if error.status != 401 or not await self._authenticator.renew(credentials):
                raise
            socket = await self._upgrade(url, protocols, await self._authenticator.credentials())
        try:
            yield HttpWebSocket(socket, partial(self._attempt, None))
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
                message = f"{self._route.server} does not open a WebSocket: HTTP {error.status}"
                raise UpgradeRefusedError(error.status, message) from None
            return socket

    async def close(self) -> None:
        """Close all connections; what is still in flight fails with TransportError."""
        self._attempts.end()
        await _settled(lambda: not self._attempts.deadlines)
        if self._session is not None:
            await self._session.close()
        # A TLS connection that was dropped says goodbye in its own time, after aiohttp has forgotten it.
        for sock in self._sockets:
            _shut_down(sock)
        await _settled(lambda: all(sock.fileno() < 0 for sock in self._sockets))

    def _url(self, path: str, query: Mapping[str, str] | Sequence[tuple[str, str]] | None) -> URL:
        pairs = query.items() if isinstance(query, Mapping) else query
        target = f"{path}?{_encoded(tuple(pairs))}" if pairs else path
        if " " in target or not target.isascii() or not target.isprintable():
            raise TransportError(
                f"invalid path {target!r}: percent-encode everything but letters, digits and -._~/"
            )
        return URL(f"{self._route.server}{target}", encoded=True)

    async def _exchange(self, call: _Call, credentials: Credentials) -> Response:
        path = call.url.raw_path
        # The timeout begins with the connection: a request does not fail because others were slow.
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
        """Return as soon as the response starts."""
        body = call.body
        return await self._open_session().request(
            call.method,
            call.url,
            # aiohttp writes bytes in one piece, and a file part by part.
            data=io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body,
            allow_redirects=False,
            **self._options(credentials, call.headers),
        )

    def _options(self, credentials: Credentials, headers: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Return what every request has in common: on whose behalf, and over which way."""
        every = [*headers, *self._route.headers]
        if authorization := credentials.authorization or self._route.authorization:
            every.append(("Authorization", authorization))
        return {
            "headers": every,
            "ssl": self._context(credentials.client_certificate),
            "server_hostname": self._config.tls_server_name or None,
            "proxy": self._route.proxy or None,
            "proxy_headers": self._route.proxy_headers,
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
                raise ResponseTooLargeError(
                    f"{self._route.server} sent a response of more than {self._response_size_limit >> 20} MiB"
                )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _attempt(self, timeout_seconds: float | None, silence: str = "") -> _Attempt:
        """Bound the time of an attempt, end it when the transport is closed, and translate its errors."""
        return _Attempt(self._attempts, timeout_seconds, silence)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = _Connector(
                # Requests are counted here, so that streams do not count and nobody waits inside aiohttp.
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
            # aiohttp would send PUT and DELETE again; the operator looks before it repeats a write.
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
        """Return the context for a certificate; the pool keeps connections of different contexts apart."""
        shown, context = self._tls
        if shown != certificate:
            context = tls_context(self._config, certificate)
            self._tls = (certificate, context)
        return context


class _Attempts:
    """The requests under way."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.deadlines: set[asyncio.Timeout] = set()
        self.closed = False

    def end(self) -> None:
        """Let all of them fail, and every later one."""
        self.closed = True
        for deadline in self.deadlines:
            if not deadline.expired():
                deadline.reschedule(asyncio.get_running_loop().time())

    def error_from(self, error: BaseException | None, silence: str) -> TransportError | None:
        """Return what a caller is told instead of aiohttp's error, None for what is not an error of ours."""
        if not isinstance(error, _FAILURES):
            return None
        if self.closed:
            return self.closed_error()
        if isinstance(error, TimeoutError):
            return TransportTimeoutError(silence or self.route.timeout_message(error))
        return TransportError(self.route.error_message(error))

    def closed_error(self) -> TransportError:
        return TransportError(f"the transport to {self.route.server} is closed")


class _Attempt:
    """One of them; not a generator, which asyncio keeps a register of, at a price for every request."""

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
        # Without its cause: aiohttp's errors carry the headers of the request, and the token with them.
        if (told := self._attempts.error_from(error, self._silence)) is not None:
            raise told from None


class _Connector(aiohttp.TCPConnector):
    """Drops an idle connection on which the server has sent something that nobody asked for.

    aiohttp would take it for the response to the next request.
    """

    async def _get(self, *details: Any) -> Any:
        connection = await super()._get(*details)
        while connection is not None and connection.protocol is not None and connection.protocol.should_close:
            connection.close()
            connection = await super()._get(*details)
        return connection


class _HttpStream:
    """A response that is still being sent."""

    def __init__(
        self, response: aiohttp.ClientResponse, attempt: Callable[[], AbstractAsyncContextManager[None]]
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._attempt = attempt

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield bytes as they arrive; ends when the server closes."""
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
        """Fail if the connection is gone: aiohttp drops it on an invalid chunk, and tells no reader."""
        connection = self._response.connection
        if connection is None or connection.transport is None or connection.transport.is_closing():
            raise aiohttp.ClientPayloadError


class _Call(msgspec.Struct, frozen=True):
    """A request without its credentials."""

    method: str
    url: URL
    headers: Headers
    timeout_seconds: float | None
    """Until the whole response is there, or for a stream until it starts."""
    body: bytes | None = None


@lru_cache
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """Return a query as it stands in a URL; most requests have one of a few."""
    return urlencode(query, quote_via=quote)


def _abort(response: aiohttp.ClientResponse) -> None:
    """Drop a connection at once; a TLS close would keep it open until the server has responded."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _shut_down(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        # Closed or never connected.
        return


async def _settled(holds: Callable[[], bool]) -> None:
    """Let callbacks that are due run; they are few, and none of them waits for the server."""
    for _ in range(100):
        if holds():
            return
        await asyncio.sleep(0)
