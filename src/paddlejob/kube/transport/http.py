"""The transport over aiohttp: credentials, time limits, and messages for what goes wrong.

docs/decisions/0010-aiohttp.md says why, and what was measured.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlencode

import aiohttp
import msgspec
from aiohttp.http import HttpProcessingError
from yarl import URL

from paddlejob.kube.errors import (
    ConfigError,
    ResponseTooLargeError,
    TransportError,
    TransportTimeoutError,
    UpgradeRefusedError,
)
from paddlejob.kube.transport import Response, Stream, WebSocket
from paddlejob.kube.transport.auth import Authenticator, Credentials, authenticator_for, basic
from paddlejob.kube.transport.cluster import ClusterConfig, Impersonation
from paddlejob.kube.transport.tls import ClientCertificate, tls_context
from paddlejob.kube.transport.url import is_host_name, parse_url, without_password
from paddlejob.kube.transport.websocket import HttpWebSocket

CONNECTION_LIMIT = 32
"""asyncio's TLS keeps 256 KiB for each."""
RESPONSE_SIZE_LIMIT = 128 << 20
"""Far above any page of a list: what is larger is a mistake or an attack, compressed or not."""
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

_OPENSSL_TEXT = re.compile(r"\[SSL[^]]*\] (.*?)( \(_ssl\.c:\d+\))?$")

Headers = list[tuple[str, str]]
"""Pairs, because impersonation repeats a name."""


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
    ) -> None:
        """Check the configuration; connections are made when first needed.

        The server names us after `user_agent`, up to its first slash, as the manager of the fields we write.
        Streams have connections of their own, above `connection_limit`.
        Raises ConfigError when an address or the certificate authority cannot be used.
        """
        self._config = config
        self._authenticator = authenticator or authenticator_for(config.user)
        self._user_agent = user_agent
        self._connect_timeout_seconds = connect_timeout_seconds
        self._stream_open_timeout_seconds = stream_open_timeout_seconds
        self._response_size_limit = response_size_limit
        self._route = _Route(config)
        self._tls: tuple[ClientCertificate | None, ssl.SSLContext] = (None, tls_context(config))
        self._session: aiohttp.ClientSession | None = None
        self._free_connections = asyncio.Semaphore(connection_limit)
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._deadlines: set[asyncio.Timeout] = set()
        self._closed = False

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
        self._closed = True
        for deadline in self._deadlines:
            if not deadline.expired():
                deadline.reschedule(asyncio.get_running_loop().time())
        await _settled(lambda: not self._deadlines)
        if self._session is not None:
            await self._session.close()
        # A TLS connection that was dropped says goodbye in its own time, after aiohttp has forgotten it.
        for sock in self._sockets:
            _shut_down(sock)
        await _settled(lambda: all(sock.fileno() < 0 for sock in self._sockets))

    def _url(self, path: str, query: Mapping[str, str] | Sequence[tuple[str, str]] | None) -> URL:
        target = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
        if " " in target or not target.isascii() or not target.isprintable():
            raise TransportError(
                f"invalid path {target!r}: percent-encode everything but letters, digits and -._~/"
            )
        return URL(f"{self._route.server}{target}", encoded=True)

    async def _exchange(self, call: _Call, credentials: Credentials) -> Response:
        async with (
            self._attempt(call.timeout_seconds),
            self._free_connections,
            await self._send(call, credentials) as response,
        ):
            return Response(response.status, await self._body(response), response.headers)

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

    @asynccontextmanager
    async def _attempt(self, timeout_seconds: float | None, silence: str = "") -> AsyncIterator[None]:
        """Bound the time of an attempt, end it when the transport is closed, and translate its errors."""
        if self._closed:
            raise self._closed_error()
        try:
            async with asyncio.timeout(timeout_seconds) as deadline:
                self._deadlines.add(deadline)
                try:
                    yield
                finally:
                    self._deadlines.discard(deadline)
        except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError, RuntimeError) as error:
            if self._closed:
                raise self._closed_error() from None
            # Without its cause: aiohttp's errors carry the headers of the request, and the token with them.
            if isinstance(error, TimeoutError):
                raise TransportTimeoutError(silence or self._route.timeout_message(error)) from None
            raise TransportError(self._route.error_message(error)) from None

    def _closed_error(self) -> TransportError:
        return TransportError(f"the transport to {self._route.server} is closed")

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


class _Route:
    """The addresses of a server, for requests and for messages; none of them contains a password."""

    def __init__(self, config: ClusterConfig) -> None:
        """Check the addresses.

        Raises ConfigError for one that cannot be used.
        """
        server = parse_url(config.server, "the server", "https://HOST:PORT")
        if config.tls_server_name and not is_host_name(config.tls_server_name):
            where = f"{config.source}: " if config.source else ""
            raise ConfigError(f"{where}tls-server-name: invalid host name {config.tls_server_name!r}")
        self.server = without_password(server).rstrip("/")
        self.authorization = _authorization_in(server) if server.scheme == "https" else ""
        """For a request without other credentials, as Go clients do."""
        self.headers = _impersonation(config.user.impersonate)
        self.proxy = ""
        self.proxy_headers: dict[str, str] = {}
        if config.proxy_url:
            proxy = parse_url(config.proxy_url, "the proxy", "http://HOST:PORT")
            self.proxy = without_password(proxy)
            self._set_proxy_authorization(_authorization_in(proxy), tunnel=server.scheme == "https")

    def _set_proxy_authorization(self, authorization: str, *, tunnel: bool) -> None:
        if authorization and tunnel:
            self.proxy_headers["Proxy-Authorization"] = authorization
        elif authorization:
            self.headers.append(("Proxy-Authorization", authorization))

    def timeout_message(self, error: TimeoutError) -> str:
        """Say what took too long."""
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"unable to connect to {self.server}: timed out"
        return f"request to {self.server} timed out"

    def error_message(self, error: Exception) -> str:
        """Say in one sentence what failed, and where a setting may be the cause."""
        match error:
            case aiohttp.ClientHttpProxyError():
                refusal = f"{error.status} {error.message}"
                return f"proxy {self.proxy} is unable to connect to {self.server}: {refusal}"
            case aiohttp.ClientConnectorError():
                peer = f"proxy {self.proxy}" if self._is_about_proxy(error) else self.server
                return f"unable to connect to {peer}: {_reason(error)}"
            case aiohttp.InvalidURL() | UnicodeError():
                return f"invalid URL {self.server!r}"
            case aiohttp.ServerDisconnectedError():
                return f"{self.server} closed the connection without a response"
            case aiohttp.ClientPayloadError():
                return f"the connection to {self.server} broke in the middle of a response"
            case _:
                return f"the connection to {self.server} failed: {_detail(error)}"

    def _is_about_proxy(self, error: aiohttp.ClientConnectorError) -> bool:
        """Return which host failed: behind a proxy, only the proxy's name is looked up."""
        return isinstance(error, aiohttp.ClientProxyConnectionError) or (
            bool(self.proxy) and isinstance(error, aiohttp.ClientConnectorDNSError)
        )


def _reason(error: aiohttp.ClientConnectorError) -> str:
    """Return why a connection could not be made."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        detail = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        return f"its certificate is not trusted: {detail}; check certificate-authority"
    cause = error.os_error
    if isinstance(cause, ssl.SSLError):
        return f"TLS handshake failed: {_detail(cause)}"
    return _detail(cause)


def _detail(error: Exception) -> str:
    """Return the text of an error on one line, without the address or URL that libraries add."""
    if isinstance(error, HttpProcessingError | aiohttp.ClientResponseError):
        return " ".join(error.message.split())
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if found := _OPENSSL_TEXT.search(text):
        return found[1]
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno).lower()
    return text


def _authorization_in(url: SplitResult) -> str:
    return basic(unquote(url.username), unquote(url.password or "")) if url.username else ""


def _impersonation(whom: Impersonation | None) -> Headers:
    if whom is None:
        return []
    headers = [("Impersonate-User", whom.user)]
    if whom.uid:
        headers.append(("Impersonate-Uid", whom.uid))
    headers += [("Impersonate-Group", group) for group in whom.groups]
    headers += [
        (f"Impersonate-Extra-{quote(key, safe='')}", value)
        for key, values in whom.extra.items()
        for value in values
    ]
    return headers


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
