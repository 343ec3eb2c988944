"""Server-sent events: a stream of named JSON values over plain HTTP, which passes every proxy."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

PING_SECONDS = 15.0
"""Interval of pings on an idle stream, which also detect closed connections."""
RETRY_MILLISECONDS = 1000
OUTBOX_BYTES = 256 * 1024
"""Unread bytes kept for one stream; a user has at most MAX_STREAMS of them."""


class Message(NamedTuple):
    """One event. A browser that reconnects sends the last id it received."""

    event: str
    data: Any
    id: str = ""

    def encode(self) -> bytes:
        """Return the event in the wire format."""
        head = f"id: {self.id}\n" if self.id else ""
        return f"{head}event: {self.event}\ndata: ".encode() + msgspec.json.encode(self.data) + b"\n\n"


class Outbox:
    """A queue of unread messages, bounded in bytes: a slow reader blocks the senders."""

    def __init__(self, max_bytes: int = OUTBOX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._changed = asyncio.Condition()

    async def put(self, message: Message) -> None:
        """Add a message when there is room. A message above the bound waits for an empty queue."""
        encoded = msgspec.json.encode(message.data)
        async with self._changed:
            await self._changed.wait_for(
                lambda: not self._messages or self._bytes + len(encoded) <= self._max_bytes
            )
            self._messages.append(message._replace(data=msgspec.Raw(encoded)))
            self._bytes += len(encoded)
            self._changed.notify_all()

    async def get(self) -> Message:
        """Wait for the oldest message, remove it and return it."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._messages))
            message = self._messages.popleft()
            self._bytes -= len(message.data)
            self._changed.notify_all()
            return message


async def respond(
    request: web.Request, messages: AsyncGenerator[Message, None], over: asyncio.Future[None]
) -> web.StreamResponse:
    """Send messages until they end, the browser disconnects, or `over` is done."""
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",  # nginx would delay events
        }
    )
    waiting: asyncio.Future[Any] = asyncio.ensure_future(anext(messages))
    try:
        await response.prepare(request)
        await response.write(f"retry: {RETRY_MILLISECONDS}\n\n".encode())
        while not over.done():
            either: set[asyncio.Future[Any]] = {waiting, over}
            await asyncio.wait(either, timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                await response.write(b": ping\n\n")
                continue
            try:
                message = waiting.result()
            except StopAsyncIteration:
                break
            await response.write(message.encode())
            waiting = asyncio.ensure_future(anext(messages))
    except ConnectionError:
        pass  # the browser has disconnected
    finally:
        waiting.cancel()
        await asyncio.wait({waiting})
        await messages.aclose()
    return response
