"""The port that reports are sent to. Only the leader opens it, so a report reaches the leader or nobody."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

MOST_BYTES = 1 << 16
READ_SECONDS = 10.0
IDLE_SECONDS = 15.0
"""How long a connection is kept for the next report: long enough where jobs are few, so that they need not
shake hands again, and short enough that those of thousands of ranks are not all open."""
HANDSHAKE_SECONDS = 10.0
MOST_CONNECTIONS = 2000
"""More than twice what ranks keep open: any pod can connect, and must not use up the operator's memory."""
PATH = "/v1/report"


class Answer(msgspec.Struct, frozen=True):
    """A status and what is said with it."""

    status: int
    body: dict[str, Any]


Handler = Callable[[str, bytes, Mapping[str, str]], Awaitable[Answer]]
"""Is given the bearer's token, the body, and the variable parts of the path."""


@asynccontextmanager
async def serve(address: str, context: ssl.SSLContext, routes: Mapping[str, Handler]) -> AsyncIterator[int]:
    """Take reports on `host:port`, at these paths, and yield the port; an empty host means all addresses."""
    host, _, port = address.rpartition(":")

    async def answer(handle: Handler, request: web.Request) -> web.Response:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token:
            return _response(Answer(401, {"message": "a bearer token is required"}))
        try:
            async with asyncio.timeout(READ_SECONDS):
                body = await request.read()
        except TimeoutError:
            return _response(Answer(408, {"message": f"no body within {READ_SECONDS:.0f} s"}))
        return _response(await handle(token.strip(), body, request.match_info))

    app = web.Application(client_max_size=MOST_BYTES)
    for path, handle in routes.items():
        app.router.add_post(path, partial(answer, handle))
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=IDLE_SECONDS, shutdown_timeout=1.0)
    await runner.setup()
    handlers = runner.server
    assert handlers is not None
    listening = None
    try:
        listening = await asyncio.get_running_loop().create_server(
            lambda: handlers() if len(handlers.connections) < MOST_CONNECTIONS else _Full(),
            host or None,
            int(port),
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
        )
        yield listening.sockets[0].getsockname()[1]
    finally:
        if listening is not None:
            listening.close()
        await shut_down(runner)


async def shut_down(runner: web.AppRunner) -> None:
    """Stop serving, and do not wait for clients to close their connections."""
    connections = runner.server.connections if runner.server else []
    transports = [each.transport for each in connections if each.transport]
    await runner.cleanup()
    for transport in transports:
        # TLS is closed by both sides, and a rank that trains does not listen until its next report.
        transport.abort()


class _Full(asyncio.Protocol):
    """Ends a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Do not answer: the client retries later."""
        transport.close()


def _response(answer: Answer) -> web.Response:
    response = web.Response(
        status=answer.status, body=msgspec.json.encode(answer.body), content_type="application/json"
    )
    if answer.status not in (200, 429):
        response.force_close()
    return response
