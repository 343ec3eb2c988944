"""Fair queueing of requests for connections, round-robin by namespace."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from paddlejob.fair_share import FairShare

CONNECTION_LIMIT = 32
"""Connections for namespaced requests; asyncio's TLS uses 256 KiB for each."""
CLUSTER_CONNECTION_LIMIT = 8
"""Connections for cluster-scoped requests, which therefore never wait for a namespace."""


class FairLimiter:
    """Limits the requests in flight, in total and by group; waiting groups take turns.

    Slow requests of one tenant therefore leave connections for the others. Each group is served in order.
    """

    def __init__(self, limit: int) -> None:
        self._slots = FairShare(limit)
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By group; the next group comes first."""

    async def enter(self, group: str) -> None:
        """Wait for a slot; the caller must call `leave`, unless this is cancelled."""
        if group not in self._waiting and self._slots.take(group):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self.leave(group)
            raise

    def leave(self, group: str) -> None:
        """Release a slot of the group and admit the next request."""
        self._slots.give_back(group)
        while (admitted := next(filter(self._slots.may_take, self._waiting), None)) is not None:
            self._admit_from(admitted)

    def _admit_from(self, group: str) -> None:
        waiters = self._waiting.pop(group)
        waiter = waiters.popleft()
        if waiters:
            self._waiting[group] = waiters
        if not waiter.done():
            self._slots.take(group)
            waiter.set_result(None)


class RequestLimiter:
    """Limits requests by path: namespaces share one set of connections, other paths another."""

    def __init__(self, limit: int = CONNECTION_LIMIT) -> None:
        self._namespaces = FairLimiter(limit)
        self._cluster = FairLimiter(min(limit, CLUSTER_CONNECTION_LIMIT))

    async def enter(self, path: str) -> None:
        """Wait for a connection; the caller must call `leave`, unless this is cancelled."""
        namespace = _namespace(path)
        await (self._namespaces.enter(namespace) if namespace else self._cluster.enter(path))

    def leave(self, path: str) -> None:
        namespace = _namespace(path)
        if namespace:
            self._namespaces.leave(namespace)
        else:
            self._cluster.leave(path)


def _namespace(path: str) -> str:
    return path.partition("/namespaces/")[2].partition("/")[0]
