"""One connection to a server: a request goes out, its answer comes in, whole or part by part.

The event loop only tells when the socket can be read or written; asyncio's own TLS costs several times what a
request costs otherwise (docs/decisions/0009-our-own-http.md).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from paddlejob.kube.http_message import AnswerReader, Head, HttpError
from paddlejob.kube.transport import Response

_READ_BYTES = 64 * 1024
_READS_AT_A_TIME = 8
"""So that one stream with much to say does not keep all others waiting."""
_UNREAD_LIMIT = 1024 * 1024
"""Bytes of a stream that may lie here unread before the server is made to wait."""
_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class NoAnswerError(Exception):
    """The connection ended before an answer began."""


class Connection:
    """Carries one exchange at a time over a connected socket that does not block.

    What goes wrong is raised to whoever waits: HttpError, NoAnswerError or OSError. A wait that is given up
    leaves the connection unusable, so its owner closes it.
    """

    def __init__(self, sock: socket.socket, on_lost: Callable[[Connection], None]) -> None:
        """Take over a socket; `on_lost` is called once, when it is closed by either side."""
        self._socket = sock
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._descriptor = sock.fileno()
        self._unsent = b""
        self._reader: AnswerReader | None = None
        self._whole = True
        self._parts: list[bytes] = []
        self._unread = 0
        self._paused = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._loop.add_reader(self._descriptor, self._readable)

    @property
    def lost(self) -> bool:
        """Whether the socket is closed."""
        return self._descriptor < 0

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent."""
        return not self.lost and not self._unsent and (self._reader is None or self._reader.leaves_connection)

    @property
    def _awaits_answer(self) -> bool:
        return self._reader is not None and not self._reader.done

    async def ask(self, request: bytes) -> Response:
        """Send a request and return its whole answer."""
        reader = self._send(request, AnswerReader(), whole=True)
        while not reader.done:
            await self._progress()
        assert reader.head is not None
        return Response(reader.head.status, self._taken(), reader.head.headers)

    async def open(self, request: bytes, *, tunnel: bool = False) -> Head:
        """Send a request and return how its answer begins; `more` gives the rest."""
        reader = self._send(request, AnswerReader(tunnel=tunnel), whole=False)
        while reader.head is None:
            await self._progress()
        return reader.head

    async def more(self) -> bytes:
        """Return what has arrived of the body, nothing at its end."""
        assert self._reader is not None, "nothing was asked"
        while not self._parts and not self._reader.done:
            await self._progress()
        return self._taken()

    def close(self) -> None:
        """Close at once; a TLS farewell would keep the socket open until the server has answered it."""
        self._end(None)

    def release(self) -> socket.socket:
        """Give the socket away, for TLS through a tunnel; this connection is of no use any more."""
        self._forget_socket()
        return self._socket

    def _send(self, request: bytes, reader: AnswerReader, *, whole: bool) -> AnswerReader:
        if self.lost:
            raise NoAnswerError
        self._reader, self._whole = reader, whole
        # An answer that was complete when its reader gave up lies here still.
        self._parts, self._unread = [], 0
        self._unsent = request
        self._flush()
        if self._unsent:
            self._loop.add_writer(self._descriptor, self._writable)
        return reader

    def _writable(self) -> None:
        self._flush()
        if not self._unsent and not self.lost:
            self._loop.remove_writer(self._descriptor)

    def _flush(self) -> None:
        """Send what the socket takes now."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except _NOT_NOW:
            return
        except OSError as error:
            self._unsent = b""
            self._end(error)

    def _readable(self) -> None:
        try:
            for _ in range(_READS_AT_A_TIME):
                if not self._received(self._socket.recv(_READ_BYTES)):
                    return
        except _NOT_NOW:
            return
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._end(None)
        except OSError as error:
            self._end(error)

    def _received(self, data: bytes) -> bool:
        """Take bytes; tell whether to look for more at once."""
        if not data or self._reader is None or not self._awaits_answer:
            # A server that talks though nothing was asked is not to be trusted with a request.
            self._end(None)
            return False
        try:
            parts = self._reader.feed(data)
        except HttpError as error:
            self._end(error)
            return False
        self._parts += parts
        if self._reader.done or not self._whole:
            self._hold_back(parts)
            self._wake()
        return not self._reader.done and not self._paused

    async def _progress(self) -> None:
        """Wait until something has arrived or gone wrong; raise what had gone wrong before."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _taken(self) -> bytes:
        parts, self._parts, self._unread = self._parts, [], 0
        if self._paused and not self.lost:
            self._paused = False
            self._loop.add_reader(self._descriptor, self._readable)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _hold_back(self, parts: list[bytes]) -> None:
        self._unread += sum(map(len, parts))
        if self._unread > _UNREAD_LIMIT and not self._whole:
            self._paused = True
            self._loop.remove_reader(self._descriptor)

    def _end(self, error: Exception | None) -> None:
        """Close the socket: what was asked has its whole answer, or has failed."""
        if self.lost:
            return
        self._forget_socket()
        self._socket.close()
        if self._reader is not None and not self._reader.done:
            self._error = error or _end_of(self._reader)
        self._wake()
        self._on_lost(self)

    def _forget_socket(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        self._descriptor = -1

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _end_of(reader: AnswerReader) -> Exception | None:
    """Return what the end of the connection means to an answer, None when it completes it."""
    if not reader.begun:
        return NoAnswerError()
    try:
        reader.close()
    except HttpError as error:
        return error
    return None
