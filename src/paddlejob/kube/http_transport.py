"""The transport over HTTP/1.1: credentials, time limits, and sentences for what goes wrong."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from urllib.parse import quote, urlencode

import msgspec

from paddlejob.kube.auth import Authenticator, Identity, authenticator_for
from paddlejob.kube.cluster import ClusterConfig, Impersonation
from paddlejob.kube.errors import TransportError, TransportTimeoutError
from paddlejob.kube.http_connection import Connection, NoAnswerError
from paddlejob.kube.http_dial import Dialer
from paddlejob.kube.http_message import Head, HttpError, header_lines, request_bytes
from paddlejob.kube.http_pool import Pool
from paddlejob.kube.tls import ClientCertificate, tls_context
from paddlejob.kube.transport import Response, Stream


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
        connection_limit: int = 100,
        user_agent: str = "paddlejob",
        connect_timeout_seconds: float = 10.0,
        stream_open_timeout_seconds: float = 30.0,
    ) -> None:
        """Check the configuration; connections are made when first needed.

        The server names us after `user_agent`, up to its first slash, as the manager of the fields we write.
        Streams have connections of their own, above `connection_limit`.
        Raises ConfigError when an address or the certificate authority cannot be used.
        """
        self._config = config
        self._authenticator = authenticator or authenticator_for(config.user)
        self._connection_limit = connection_limit
        self._stream_open_timeout_seconds = stream_open_timeout_seconds
        self._dialer = Dialer(config, timeout_seconds=connect_timeout_seconds)
        with _translated(config):
            self._headers = header_lines(
                [
                    ("Host", self._dialer.host),
                    ("User-Agent", user_agent),
                    *self._dialer.proxy_headers,
                    *_impersonation(config.user.impersonate),
                ]
            )
        self._route = self._route_for(None)
        self._old_pools: list[Pool] = []
        self._streams: set[Connection] = set()
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
        headers = "Accept: application/json\r\nAccept-Encoding: gzip\r\n"
        if body is not None:
            headers += f"Content-Type: {content_type}\r\n"
        call = _Call(method, self._target(path, query), headers, body, timeout_seconds)
        identity = await self._authenticator.identity()
        response = await self._ask(call, identity)
        if response.status == 401 and await self._authenticator.renew(identity):
            return await self._ask(call, await self._authenticator.identity())
        return response

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
        headers = "Accept: application/json, */*\r\nAccept-Encoding: identity\r\n"
        call = _Call("GET", self._target(path, query), headers, None, self._stream_open_timeout_seconds)
        identity = await self._authenticator.identity()
        connection, head = await self._open(call, identity)
        try:
            if head.status == 401 and await self._authenticator.renew(identity):
                connection.close()
                connection, head = await self._open(call, await self._authenticator.identity())
            yield HttpStream(connection, head, self._config, idle_timeout_seconds)
        finally:
            connection.close()

    async def close(self) -> None:
        """Close all connections; what is still under way fails with TransportError."""
        self._closed = True
        for pool in (*self._old_pools, self._route.pool):
            await pool.close()
        for connection in list(self._streams):
            connection.close()

    def _target(self, path: str, query: Mapping[str, str] | None) -> str:
        parameters = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return f"{self._dialer.target_prefix}{path}{parameters}"

    async def _ask(self, call: _Call, identity: Identity) -> Response:
        with _translated(self._config):
            request, pool = self._request(call, identity), self._route_for_identity(identity).pool
            async with asyncio.timeout(call.timeout_seconds):
                connection = await pool.borrow()
                try:
                    return await connection.ask(request)
                finally:
                    pool.give_back(connection)

    async def _open(self, call: _Call, identity: Identity) -> tuple[Connection, Head]:
        """Send a request over a connection of its own; return it when the answer begins."""
        with _translated(self._config):
            request, context = self._request(call, identity), self._route_for_identity(identity).context
            async with asyncio.timeout(call.timeout_seconds):
                connection = await self._dialer.dial(context, self._streams.discard)
                self._streams.add(connection)
                try:
                    self._check_open()
                    return connection, await connection.open(request)
                except BaseException:
                    connection.close()
                    raise

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError(f"the transport to {self._config.server} is closed")

    def _request(self, call: _Call, identity: Identity) -> bytes:
        self._check_open()
        headers = f"{self._headers}{call.headers}"
        if identity.authorization:
            headers += header_lines([("Authorization", identity.authorization)])
        return request_bytes(call.method, call.target, headers, call.body)

    def _route_for_identity(self, identity: Identity) -> _Route:
        """Return the way with a certificate; a new one leaves the old one's connections behind."""
        if self._route.certificate != identity.client_certificate:
            route = self._route_for(identity.client_certificate)
            self._route.pool.retire()
            self._old_pools = [pool for pool in (*self._old_pools, self._route.pool) if not pool.is_empty]
            self._route = route
        return self._route

    def _route_for(self, certificate: ClientCertificate | None) -> _Route:
        context = tls_context(self._config, certificate)
        pool = Pool(partial(self._dialer.dial, context), limit=self._connection_limit)
        return _Route(certificate, context, pool)


class HttpStream:
    """An answer that is still being sent."""

    def __init__(
        self,
        connection: Connection,
        head: Head,
        config: ClusterConfig,
        idle_timeout_seconds: float | None = None,
    ) -> None:
        self.status = head.status
        self.headers: Mapping[str, str] = head.headers
        self._connection = connection
        self._config = config
        self._idle_timeout_seconds = idle_timeout_seconds

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield bytes as they arrive; ends when the server closes."""
        while chunk := await self._next():
            yield chunk

    async def _next(self) -> bytes:
        with _translated(self._config):
            try:
                async with asyncio.timeout(self._idle_timeout_seconds):
                    return await self._connection.more()
            except TimeoutError as error:
                raise TransportTimeoutError(
                    f"{self._config.server} sent nothing for {self._idle_timeout_seconds:g} seconds"
                ) from error


class _Call(msgspec.Struct, frozen=True):
    """A request before it is known on whose behalf it is sent."""

    method: str
    target: str
    headers: str
    body: bytes | None
    timeout_seconds: float | None
    """Until the whole answer is there, or for a stream until it begins."""


class _Route(msgspec.Struct, frozen=True):
    """The way to the server with one client certificate."""

    certificate: ClientCertificate | None
    context: ssl.SSLContext
    pool: Pool


def _impersonation(whom: Impersonation | None) -> list[tuple[str, str]]:
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


@contextmanager
def _translated(config: ClusterConfig) -> Iterator[None]:
    """Raise errors of HTTP and of the system as TransportError."""
    try:
        yield
    except TimeoutError as error:
        raise TransportTimeoutError(f"{config.server} gave no answer in time") from error
    except NoAnswerError as error:
        raise TransportError(f"{config.server} closed the connection without an answer") from error
    except (HttpError, OSError) as error:
        detail = str(error) or type(error).__name__
        raise TransportError(f"the connection to {config.server} broke: {detail}") from error
