"""The transport over aiohttp: the only module here that knows an HTTP library."""

from __future__ import annotations

import asyncio
import math
import ssl
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import msgspec
from aiohttp.http import HttpProcessingError
from yarl import URL

from paddlejob.kube.auth import Authenticator, Identity, authenticator_for
from paddlejob.kube.cluster import ClusterConfig, Impersonation
from paddlejob.kube.errors import TransportError, TransportTimeoutError
from paddlejob.kube.tls import ClientCertificate, tls_context
from paddlejob.kube.transport import Response, Stream

_KEEP_ALIVE_SECONDS = 30.0
"""Shorter than servers and load balancers wait, so that no write goes into a connection just being closed."""
_LIVENESS_CHECK_SECONDS = 10.0

Headers = list[tuple[str, str]]
"""Pairs, because impersonation repeats a name."""


class AiohttpTransport:
    """Reaches one API server over HTTP/1.1 with a pool of connections.

    Guarantees that whatever it raises is a TransportError, and that a 401 is tried again once when there are
    better credentials by then.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        authenticator: Authenticator | None = None,
        connection_limit: int = 100,
        user_agent: str = "paddlejob",
        connect_timeout_seconds: float = 10.0,
        stream_open_timeout_seconds: float = 30.0,
    ) -> None:
        """Check the configuration; connections are made when first needed.

        The server names us after `user_agent`, up to its first slash, as the manager of the fields we write.
        Raises ConfigError when the certificate authority cannot be used.
        """
        self._config = config
        self._authenticator = authenticator or authenticator_for(config.user)
        self._connection_limit = connection_limit
        self._headers = _fixed_headers(user_agent, config.user.impersonate)
        self._connect_timeout_seconds = connect_timeout_seconds
        self._stream_open_timeout_seconds = stream_open_timeout_seconds
        self._tls: tuple[ClientCertificate | None, ssl.SSLContext] = (None, tls_context(config))
        self._session: aiohttp.ClientSession | None = None
        self._connector: _Connector | None = None
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
        """Send one request and return the whole answer, whatever its status code."""
        headers = [("Accept", "application/json"), ("Accept-Encoding", "gzip")]
        if body is not None:
            headers.append(("Content-Type", content_type))
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=self._connect_timeout_seconds)
        response = await self._open(_Call(method, self._url(path, query), headers, timeout, body=body))
        with _translated(self._config):
            async with response:
                return Response(response.status, await response.read(), _lower(response.headers))

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        idle_timeout_seconds: float | None = None,
    ) -> AsyncIterator[Stream]:
        """Open a GET whose answer is read as it comes; it has to begin within the open time-out."""
        # Compressed, an event could sit in a buffer on the way.
        headers = [("Accept", "application/json, */*"), ("Accept-Encoding", "identity")]
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_seconds)
        call = _Call("GET", self._url(path, query), headers, timeout, self._stream_open_timeout_seconds)
        response = await self._open(call)
        try:
            yield _AiohttpStream(response, self._config, idle_timeout_seconds)
        finally:
            _abort(response)

    async def close(self) -> None:
        """Close all connections; what is still under way fails with TransportError."""
        self._closed = True
        if self._session is not None and self._connector is not None:
            await self._session.close()
            await self._connector.abort_rest()

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        parameters = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return URL(f"{self._config.server}{path}{parameters}", encoded=True)

    async def _open(self, call: _Call) -> aiohttp.ClientResponse:
        """Send, with new credentials a second time if need be, and return as soon as the answer begins."""
        identity = await self._authenticator.identity()
        response = await self._send(call, identity)
        if response.status != 401:
            return response
        try:
            renewed = await self._authenticator.renew(identity)
        except BaseException:
            response.close()
            raise
        if not renewed:
            return response
        response.close()
        return await self._send(call, await self._authenticator.identity())

    async def _send(self, call: _Call, identity: Identity) -> aiohttp.ClientResponse:
        if self._closed:
            raise TransportError(f"the transport to {self._config.server} is closed")
        headers = [*self._headers, *call.headers]
        if identity.authorization:
            headers.append(("Authorization", identity.authorization))
        context = self._context(identity.client_certificate)
        request = self._open_session().request(
            call.method,
            call.url,
            headers=headers,
            data=call.body,
            timeout=call.timeout,
            ssl=context,
            server_hostname=self._config.tls_server_name or None,
            proxy=self._config.proxy_url or None,
            # Credentials are for this server and no other.
            allow_redirects=False,
        )
        with _translated(self._config):
            if call.open_timeout_seconds is None:
                return await request
            async with asyncio.timeout(call.open_timeout_seconds):
                return await request

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._connector = _Connector(limit=self._connection_limit, keepalive_timeout=_KEEP_ALIVE_SECONDS)
            self._session = aiohttp.ClientSession(
                connector=self._connector, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def _context(self, certificate: ClientCertificate | None) -> ssl.SSLContext:
        """Return the context for a certificate; a new one leaves the old one's connections behind."""
        shown, context = self._tls
        if shown != certificate:
            context = tls_context(self._config, certificate)
            self._tls = (certificate, context)
        return context


class _Connector(aiohttp.TCPConnector):
    """Knows its sockets, so that none outlives it.

    A connection that is dropped in the middle of a request says farewell over TLS, in its own time, after the
    library has forgotten it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._opened: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()

    async def _create_connection(self, *details: Any, **more: Any) -> Any:
        handler = await super()._create_connection(*details, **more)
        if isinstance(handler.transport, asyncio.Transport):
            self._opened.add(handler.transport)
        return handler

    async def abort_rest(self) -> None:
        """Close what is still open, without farewell."""
        for transport in list(self._opened):
            transport.abort()
        # Sockets are closed by callbacks of the aborted transports.
        for _ in range(3):
            await asyncio.sleep(0)


class _Call(msgspec.Struct, frozen=True):
    """A request before it is sent."""

    method: str
    url: URL
    headers: Headers
    timeout: aiohttp.ClientTimeout
    open_timeout_seconds: float | None = None
    body: bytes | None = None


class _AiohttpStream:
    def __init__(
        self, response: aiohttp.ClientResponse, config: ClusterConfig, idle_timeout_seconds: float | None
    ) -> None:
        self._response = response
        self._config = config
        self._idle_timeout_seconds = idle_timeout_seconds
        self.status = response.status
        self.headers: Mapping[str, str] = _lower(response.headers)

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._next():
            yield chunk

    async def _next(self) -> bytes:
        """Return the bytes that came, none at the end.

        The library's own idle time-out is no use here: when it cannot parse the rest of a body, it stops that
        timer, drops the connection, and leaves the reader to wait for ever.
        """
        loop = asyncio.get_running_loop()
        idle_until = (
            math.inf if self._idle_timeout_seconds is None else loop.time() + self._idle_timeout_seconds
        )
        while True:
            try:
                async with asyncio.timeout_at(min(idle_until, loop.time() + _LIVENESS_CHECK_SECONDS)):
                    with _translated(self._config):
                        return await self._response.content.readany()
            except TimeoutError:
                self._check_connection()
                if loop.time() >= idle_until:
                    raise TransportTimeoutError(
                        f"{self._config.server} sent nothing for {self._idle_timeout_seconds:g} seconds"
                    ) from None

    def _check_connection(self) -> None:
        connection = self._response.connection
        if connection is None or connection.transport is None:
            raise TransportError(f"the connection to {self._config.server} broke in the middle of a stream")


def _abort(response: aiohttp.ClientResponse) -> None:
    """Drop a stream at once; a TLS farewell would keep its socket open until the server has answered it."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _fixed_headers(user_agent: str, impersonate: Impersonation | None) -> Headers:
    headers = [("User-Agent", user_agent)]
    if impersonate is not None:
        headers.append(("Impersonate-User", impersonate.user))
        if impersonate.uid:
            headers.append(("Impersonate-Uid", impersonate.uid))
        headers += [("Impersonate-Group", group) for group in impersonate.groups]
        headers += [
            (f"Impersonate-Extra-{quote(key, safe='')}", value)
            for key, values in impersonate.extra.items()
            for value in values
        ]
    return headers


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@contextmanager
def _translated(config: ClusterConfig) -> Iterator[None]:
    """Raise errors of the HTTP library and of the system as TransportError."""
    try:
        yield
    except TimeoutError as error:
        raise TransportTimeoutError(f"{config.server} gave no answer in time") from error
    except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
        raise TransportError(_sentence(error, config)) from error


def _sentence(error: Exception, config: ClusterConfig) -> str:
    """Say in one sentence what broke, and where a setting may be the cause."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            detail = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
            return f"the certificate of {config.server} is not trusted: {detail}; check certificate-authority"
        case aiohttp.ClientProxyConnectionError():
            return f"cannot reach the proxy {_without_password(config.proxy_url)}: {error.os_error.strerror}"
        case aiohttp.ClientHttpProxyError():
            proxy = _without_password(config.proxy_url)
            return f"the proxy {proxy} does not connect to {config.server}: {error.status} {error.message}"
        case aiohttp.ClientConnectorError():
            return f"cannot reach {config.server}: {error.os_error.strerror or error.os_error}"
        case aiohttp.ServerDisconnectedError():
            return f"{config.server} closed the connection without an answer"
        case _:
            return f"the connection to {config.server} broke: {str(error) or type(error).__name__}"


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
