"""A TLS server for clients that keep their connections open, as an API server does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler


@asynccontextmanager
async def serve_tls(application: web.Application, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Serve an application on a port of this machine, and close every connection at the end.

    aiohttp closes a connection with a TLS shutdown, which waits for the client. A client that is slow to
    respond would leave an unclosed socket behind.
    """
    used: set[asyncio.Transport] = set()

    @web.middleware
    async def note_transport(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.transport is not None:
            used.add(request.transport)
        return await handler(request)

    application.middlewares.append(note_transport)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await site.stop()
        connections = runner.server.connections if runner.server else []
        idle = {each.transport for each in connections if each.transport is not None}
        await runner.cleanup()
        for transport in used | idle:
            transport.abort()
        await asyncio.sleep(0)
