"""Connections to one server, lent for one request at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from paddlejob.kube.errors import TransportError
from paddlejob.kube.http_connection import Connection

KEEP_ALIVE_SECONDS = 30.0
"""Shorter than servers and load balancers wait, so that no write goes into a connection just being closed."""
Dial = Callable[[Callable[[Connection], None]], Awaitable[Connection]]
"""Opens a connection, and has the function called when it is lost later. Raises TransportError."""


class Pool:
    """Lends connections, the most recently used first; whoever comes first is served first.

    At most `limit` connections are open.
    """

    def __init__(self, dial: Dial, *, limit: int) -> None:
        self._dial = dial
        self._limit = limit
        self._open: set[Connection] = set()
        self._idle: list[tuple[Connection, float]] = []
        """With the time since when, longest first."""
        self._waiters: deque[asyncio.Future[Connection]] = deque()
        self._dials: set[asyncio.Task[None]] = set()
        self._retired = False

    @property
    def is_empty(self) -> bool:
        """Whether no connection is open or being opened."""
        return not self._open and not self._dials

    async def borrow(self) -> Connection:
        """Return a connection that is free; give it back with `give_back`.

        Raises TransportError when none could be opened.
        """
        connection = self._take_idle()
        if connection is not None:
            # Idle ones are left only where nobody waits.
            return connection
        waiter: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._dial_for_waiters()
        try:
            return await waiter
        except BaseException:
            self._withdraw(waiter)
            raise

    def give_back(self, connection: Connection) -> None:
        """Take a connection back, for the next request where it can carry one."""
        if connection not in self._open:
            return
        if not connection.reusable:
            connection.close()
            return
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(connection)
            return
        if self._retired:
            connection.close()
            return
        self._idle.append((connection, _time()))
        self._drop_expired()

    def retire(self) -> None:
        """Serve who is waiting, and keep no connection after that."""
        self._retired = True
        for connection, _ in list(self._idle):
            connection.close()

    async def close(self) -> None:
        """Close all connections; whoever waits for one fails with TransportError."""
        for task in self._dials:
            task.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(TransportError("the transport was closed"))
        for connection in list(self._open):
            connection.close()

    def _take_idle(self) -> Connection | None:
        self._drop_expired()
        while self._idle:
            connection, _ = self._idle.pop()
            if connection.reusable:
                return connection
            connection.close()
        return None

    def _drop_expired(self) -> None:
        while self._idle and _time() - self._idle[0][1] > KEEP_ALIVE_SECONDS:
            connection, _ = self._idle.pop(0)
            connection.close()

    def _next_waiter(self) -> asyncio.Future[Connection] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _withdraw(self, waiter: asyncio.Future[Connection]) -> None:
        """Forget a waiter that has given up, and lend on what it was just given."""
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self.give_back(waiter.result())
        elif waiter in self._waiters:
            self._waiters.remove(waiter)

    def _dial_for_waiters(self) -> None:
        while len(self._dials) < len(self._waiters) and len(self._open) + len(self._dials) < self._limit:
            task = asyncio.get_running_loop().create_task(self._dial_one(), name="open a connection")
            self._dials.add(task)
            task.add_done_callback(self._dialled)

    async def _dial_one(self) -> None:
        try:
            connection = await self._dial(self._lost)
        except Exception as error:  # noqa: BLE001  (it belongs to the one who waits; he must not wait on)
            waiter = self._next_waiter()
            if waiter is not None:
                waiter.set_exception(error)
            return
        self._open.add(connection)
        self.give_back(connection)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        self._dials.discard(task)
        self._dial_for_waiters()

    def _lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._idle = [entry for entry in self._idle if entry[0] is not connection]
        self._dial_for_waiters()


def _time() -> float:
    return asyncio.get_running_loop().time()
