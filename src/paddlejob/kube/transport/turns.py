"""Who may use a connection next when there are fewer of them than requests."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque


class Turns:
    """Lets so many requests go at the same time; while others wait, namespaces take turns.

    So the requests of a tenant with many jobs do not all go before those of a tenant with one, or before the
    renewal of a lease. In a namespace it is first come first served.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By namespace, empty for what is in none; the one whose turn is next comes first."""

    async def enter(self, path: str) -> None:
        """Wait for a turn; the caller must call `leave`, unless this is cancelled."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(_namespace(path), deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """Let the next one go."""
        while self._waiting:
            namespace, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[namespace] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def _namespace(path: str) -> str:
    return path.partition("/namespaces/")[2].partition("/")[0]
