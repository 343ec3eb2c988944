"""Serves a port on a thread with a separate event loop, so that a flood does not delay reconciling.

Connections are limited in total and by source address. An unauthenticated connection has a few seconds for
its TLS handshake and its request, and is closed if a newer connection needs its place.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from paddlejob.operator.ports import http
from paddlejob.operator.ports.http import Endpoint, Request, RequestError, Response, Router

log = logging.getLogger(__name__)

T = TypeVar("T")

HANDSHAKE_SECONDS = 3.0
HEAD_SECONDS = 2.0
"""Timeout for the head of the first request."""
IDLE_SECONDS = 15.0
"""Timeout for the next request on a persistent connection."""
WRITE_SECONDS = 10.0
CLOSE_SECONDS = 1.0
GRACE_SECONDS = 1.0
"""Minimum age at which an unauthenticated connection may be closed for a newer one."""
SLICE_BYTES = 1 << 16
MAX_ACCEPTS = 32
"""Connections accepted before open connections are served again."""
BACKLOG = 512
RESUME_SECONDS = 1.0
LOG_SECONDS = 60.0
_CLOSED = (OSError, EOFError, TimeoutError)
"""Errors of a connection that the client closed; they include ssl.SSLError and IncompleteReadError."""


class Limits(msgspec.Struct, frozen=True):
    """Maximum number of open connections."""

    connections: int
    """Connections of clients that are not authenticated."""
    per_source: int
    authenticated: int = 0
    """Further connections of authenticated clients, as many from a source as of other clients."""


class _Connection:
    def __init__(self, source: str, opened_at: float) -> None:
        self.source = source
        self.opened_at = opened_at
        self.is_authenticated = False
        self.is_trusted = False
        """Whether it counts as one of the `Limits.authenticated`."""
        self.is_served = False
        self.task: asyncio.Task[None] | None = None

    def has_used_grace(self, now: float) -> bool:
        """Return whether the time to authenticate is over."""
        return now - self.opened_at >= GRACE_SECONDS


class _Port:
    """Serves a listening socket. All methods except `__init__` run on the port's thread."""

    def __init__(
        self,
        listener: socket.socket,
        endpoints: Iterable[Endpoint],
        limits: Limits,
        context: ssl.SSLContext | None,
    ) -> None:
        self._listener = listener
        self._router = Router(endpoints)
        self._limits = limits
        self._tls: dict[str, Any] = {}
        if context is not None:
            self._tls = {
                "ssl": context,
                "ssl_handshake_timeout": HANDSHAKE_SECONDS,
                "ssl_shutdown_timeout": CLOSE_SECONDS,
            }
        self._open: dict[_Connection, None] = {}
        """In the order in which they were accepted."""
        self._sources: Counter[str] = Counter()
        """Number of connections that are not authenticated, by source."""
        self._trusted: Counter[str] = Counter()
        """Number of authenticated connections in addition to these, by source."""
        self._log_at = 0.0
        self.stop = asyncio.Event()

    async def run(self) -> None:
        """Accept connections until `stop` is set."""
        loop = asyncio.get_running_loop()
        # Transport errors, which clients cause; `_end` logs errors of handlers.
        loop.set_exception_handler(lambda _, context: log.debug("%s", context["message"]))
        loop.add_reader(self._listener, self._accept)
        await self.stop.wait()
        loop.remove_reader(self._listener)
        self._listener.close()
        # A task closes its socket only if it has started.
        await asyncio.sleep(0)
        tasks = [each.task for each in self._open if each.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTS):
            try:
                client, address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                # For example out of file descriptors; the listener stays readable, so pause.
                self._log(error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener)
                loop.call_later(RESUME_SECONDS, self._resume)
                return
            self._admit(client, address[0])

    def _resume(self) -> None:
        if not self.stop.is_set():
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _admit(self, client: socket.socket, source: str) -> None:
        now = asyncio.get_running_loop().time()
        if not self._has_room(source, now):
            client.close()
            return
        client.setblocking(False)  # noqa: FBT003
        connection = _Connection(source, now)
        self._open[connection] = None
        self._sources[source] += 1
        connection.task = asyncio.create_task(self._serve(client, connection))
        connection.task.add_done_callback(lambda task: self._end(connection, client, task))

    def _has_room(self, source: str, now: float) -> bool:
        """Return whether a connection may be opened, if necessary by closing an older unauthenticated one.

        On a full port, connections of the source with the most connections are closed without grace.
        """
        if self._sources[source] >= self._limits.per_source:
            return self._close_one(lambda each: each.source == source and each.has_used_grace(now))
        if self._sources.total() < self._limits.connections:
            return True
        largest, held = self._sources.most_common(1)[0]
        if self._sources[source] < held and self._close_one(lambda each: each.source == largest):
            return True
        return self._close_one(lambda each: each.has_used_grace(now))

    def _close_one(self, may_close: Callable[[_Connection], bool]) -> bool:
        for each in self._open:
            if not each.is_authenticated and may_close(each):
                assert each.task is not None
                each.task.cancel()
                self._forget(each)
                return True
        return False

    def _end(self, connection: _Connection, client: socket.socket, task: asyncio.Task[None]) -> None:
        self._forget(connection)
        if not connection.is_served:
            client.close()  # cancelled before the task ran; otherwise the transport closes it
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log(error)

    def _forget(self, connection: _Connection) -> None:
        if connection in self._open:
            del self._open[connection]
            counts = self._trusted if connection.is_trusted else self._sources
            counts[connection.source] -= 1
            if not counts[connection.source]:
                del counts[connection.source]

    def _authenticate(self, connection: _Connection) -> bool:
        """Keep the connection, and count it separately while there is room; return whether it is."""
        connection.is_authenticated = True
        source, limits = connection.source, self._limits
        has_room = self._trusted.total() < limits.authenticated and self._trusted[source] < limits.per_source
        if has_room and not connection.is_trusted and connection in self._open:
            self._forget(connection)
            self._open[connection] = None
            connection.is_trusted = True
            self._trusted[source] += 1
        return connection.is_trusted

    def _has_room_to_keep(self, source: str) -> bool:
        """Return whether a client may keep its connection: half of them are reserved for new clients."""
        limits, used = self._limits, self._sources
        return 2 * used.total() <= limits.connections and 2 * used[source] <= limits.per_source

    async def _serve(self, client: socket.socket, connection: _Connection) -> None:
        connection.is_served = True
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=http.MAX_HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, client, **self._tls)
        except _CLOSED:
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await self._exchange(reader, writer, connection)
            writer.close()
            async with asyncio.timeout(CLOSE_SECONDS):
                await writer.wait_closed()
        except _CLOSED:
            pass
        finally:
            transport.abort()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection
    ) -> None:
        """Serve the requests of a connection in order."""
        request, seconds, keep = None, HEAD_SECONDS, True
        while keep:
            try:
                async with asyncio.timeout(seconds):
                    head = await reader.readuntil(http.END_OF_HEAD)
                request = Request(head, reader, connection.source)
                request.on_authenticated = partial(self._authenticate, connection)
                response = await self._router.respond(request)
            except asyncio.LimitOverrunError:
                response = RequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE).response()
            except RequestError as error:
                response = error.response()
            connection.is_authenticated |= response.keep
            keep = response.keep and request is not None and request.keep and not request.unread
            keep = keep and (connection.is_trusted or self._has_room_to_keep(connection.source))
            await _write(writer, response, keep=keep)
            seconds = IDLE_SECONDS
        if request is not None:
            async with asyncio.timeout(CLOSE_SECONDS):
                await request.discard_body()

    def _log(self, error: BaseException) -> None:
        """Log a bug, at most once a minute, so that requests cannot fill the log."""
        now = asyncio.get_running_loop().time()
        if now >= self._log_at:
            self._log_at = now + LOG_SECONDS
            log.error("bug in the operator: a request was not served", exc_info=error)


async def _write(writer: asyncio.StreamWriter, response: Response, *, keep: bool) -> None:
    """Write in slices, so that a client that does not read occupies the memory of one slice only."""
    content = memoryview(response.body)
    async with asyncio.timeout(WRITE_SECONDS):
        writer.write(response.head(keep=keep) + content[:SLICE_BYTES])
        for start in range(SLICE_BYTES, len(content), SLICE_BYTES):
            await writer.drain()
            writer.write(content[start : start + SLICE_BYTES])
        await writer.drain()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop if it is installed (`pip install 'paddlejob[operator]'`), else asyncio's."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def call(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on another thread's event loop and return its result."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


@asynccontextmanager
async def serve(
    address: str, endpoints: Iterable[Endpoint], limits: Limits, *, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve `host:port` and yield the port; an empty host means all addresses. Raises OSError."""
    listener = _listen(address)
    port, loop = _Port(listener, endpoints, limits, context), new_event_loop()

    def run() -> None:
        try:
            loop.run_until_complete(port.run())
        finally:
            loop.close()

    thread = threading.Thread(target=run, name=f"port {address}", daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        loop.call_soon_threadsafe(port.stop.set)
        await asyncio.to_thread(thread.join)


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    if not host and socket.has_dualstack_ipv6():
        listener = socket.create_server(
            ("", int(port)), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
        )
    else:
        host = host.strip("[]") or "0.0.0.0"  # noqa: S104
        family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, int(port)), family=family, backlog=BACKLOG)
    listener.setblocking(False)  # noqa: FBT003
    return listener
