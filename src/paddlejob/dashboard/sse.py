"""Server-sent events: a stream of named JSON values over plain HTTP, which passes every proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

PING_SECONDS = 15.0
"""How often a silent stream shows that it is alive, which also tells who has gone."""
RETRY_MILLISECONDS = 1000


class Message(NamedTuple):
    """One event; a browser that reconnects says the last id that it saw."""

    event: str
    data: Any
    id: str = ""

    def encode(self) -> bytes:
        """Return the event as it is sent."""
        head = f"id: {self.id}\n" if self.id else ""
        return f"{head}event: {self.event}\ndata: ".encode() + msgspec.json.encode(self.data) + b"\n\n"


async def respond(
    request: web.Request, messages: AsyncGenerator[Message, None], over: asyncio.Future[None]
) -> web.StreamResponse:
    """Send messages until there are no more, the browser has gone, or `over` is done."""
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",  # nginx would hold events back
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
        pass  # the browser has gone
    finally:
        waiting.cancel()
        await asyncio.wait({waiting})
        await messages.aclose()
    return response
