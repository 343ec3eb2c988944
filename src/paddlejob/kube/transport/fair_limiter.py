"""Limits the requests in flight, with a fair share of the connections for every namespace."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from paddlejob.fair_share import FairShare

CONNECTION_LIMIT = 32
"""Connections for requests in namespaces; asyncio's TLS keeps 256 KiB for each."""
CLUSTER_CONNECTION_LIMIT = 8
"""Connections for requests in no namespace, so that none of them waits for requests of a namespace."""


class FairLimiter:
    """Limits the requests in flight, in total and by group; groups that wait take turns.

    So slow requests of one tenant leave connections for all others. Within a group the order is first come,
    first served.
    """

    def __init__(self, limit: int) -> None:
        self._slots = FairShare(limit)
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By group; the group that is next comes first."""

    async def enter(self, group: str) -> None:
        """Wait for a slot; the caller must call `leave`, unless this is cancelled."""
        if group not in self._waiting and self._slots.take(group):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave(group)
            raise

    def leave(self, group: str) -> None:
        """Release a slot of the group and admit the next request."""
        self._slots.give_back(group)
        while (admitted := next(filter(self._slots.may_take, self._waiting), None)) is not None:
            self._admit_from(admitted)

    def _admit_from(self, group: str) -> None:
        turns = self._waiting.pop(group)
        turn = turns.popleft()
        if turns:
            self._waiting[group] = turns
        if not turn.done():
            self._slots.take(group)
            turn.set_result(None)


class RequestLimiter:
    """Limits requests by path: namespaces share one set of connections, other paths a second one."""

    def __init__(self, limit: int = CONNECTION_LIMIT) -> None:
        self._namespaces = FairLimiter(limit)
        self._cluster = FairLimiter(min(limit, CLUSTER_CONNECTION_LIMIT))

    async def enter(self, path: str) -> None:
        """Wait for a connection; the caller must call `leave`, unless this is cancelled."""
        namespace = _namespace(path)
        await (self._namespaces.enter(namespace) if namespace else self._cluster.enter(path))

    def leave(self, path: str) -> None:
        """Release the connection of a request."""
        namespace = _namespace(path)
        if namespace:
            self._namespaces.leave(namespace)
        else:
            self._cluster.leave(path)


def _namespace(path: str) -> str:
    return path.partition("/namespaces/")[2].partition("/")[0]
