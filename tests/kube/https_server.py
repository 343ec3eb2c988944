"""Real servers on loopback: HTTPS by aiohttp, bytes by hand, and a proxy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from paddlejob.kube.decoding import split_lines
from paddlejob.kube.transport.cluster import ClusterConfig
from paddlejob.kube.transport.http import HttpTransport

DATA = Path(__file__).parent / "data"
CA = (DATA / "ca.crt").read_bytes()
OTHER_CA = (DATA / "other-ca.crt").read_bytes()

CERTIFICATE = web.RequestKey("certificate", dict)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Where a server listens and what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[web.Request] = []

    def config(self, **options) -> ClusterConfig:
        return ClusterConfig(**{"server": self.url, "certificate_authority": CA} | options)


@asynccontextmanager
async def transport_to(there: Server, /, *, options=None, **config) -> AsyncIterator[HttpTransport]:
    """Give a transport to a server, with changes to its configuration and options of its own."""
    transport = HttpTransport(there.config(**config), **(options or {}))
    try:
        yield transport
    finally:
        await transport.close()


async def lines_of(transport: HttpTransport, path: str = "/watch", **options) -> list[bytes]:
    """Return all the lines of a stream."""
    async with transport.stream(path, **options) as stream:
        return [line async for line in split_lines(stream.chunks())]


def server_context(*, client_certificates: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(DATA / "server.crt", DATA / "server.key")
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(DATA / "ca.crt")
    return context


@asynccontextmanager
async def serve(
    handler: Handler | None = None,
    *,
    host: str = "127.0.0.1",
    tls: bool = True,
    client_certificates: bool = False,
) -> AsyncIterator[Server]:
    """Serve every path with a handler, by default with an empty object."""
    server = Server()

    async def answer(request: web.Request) -> web.StreamResponse:
        # The client may be gone, and its certificate with it, when a test looks.
        request[CERTIFICATE] = request.get_extra_info("peercert")
        server.requests.append(request)
        await request.read()
        return await handler(request) if handler else web.json_response({})

    application = web.Application(client_max_size=1 << 30)
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    context = server_context(client_certificates=client_certificates) if tls else None
    site = web.TCPSite(runner, host, 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


def shown_name(request: web.Request) -> str:
    """Return the common name in the certificate that the client showed."""
    return dict(part[0] for part in request[CERTIFICATE]["subject"])["commonName"]


@asynccontextmanager
async def serve_bytes(talk: Talk) -> AsyncIterator[Server]:
    """Hand every TLS connection, its request read, to a function that may do anything with it."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await talk(reader, writer)

    async with listening(converse, ssl=server_context()) as port:
        server = Server()
        server.url = f"https://127.0.0.1:{port}"
        yield server


@asynccontextmanager
async def listening(converse: Talk, **options) -> AsyncIterator[int]:
    """Listen on a port, and end every conversation on leaving."""
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await converse(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        finally:
            writer.transport.abort()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        tasks.add(asyncio.create_task(guarded(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        # A task that never began does not end its conversation.
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


class Proxy:
    """What a proxy was asked."""

    def __init__(self) -> None:
        self.address = ""
        self.url = ""
        self.targets: list[str] = []
        self.credentials: list[str] = []


@asynccontextmanager
async def connect_proxy(refusal: str = "", *, hang: bool = False) -> AsyncIterator[Proxy]:
    """Run an HTTP CONNECT proxy that leads every name to loopback."""
    proxy = Proxy()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = head.split()[1]
        proxy.targets.append(target)
        lines = head.lower().splitlines()
        proxy.credentials += [line for line in lines if line.startswith("proxy-authorization:")]
        if hang:
            await asyncio.Event().wait()
        if refusal:
            writer.write(f"HTTP/1.1 {refusal}\r\nContent-Length: 0\r\n\r\n".encode())
            return await writer.drain()
        onward = await asyncio.open_connection("127.0.0.1", int(target.rpartition(":")[2]))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(_pump(reader, onward[1]), _pump(onward[0], writer))
        finally:
            onward[1].transport.abort()

    async with listening(converse) as port:
        proxy.address = f"127.0.0.1:{port}"
        proxy.url = f"http://{proxy.address}"
        yield proxy


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.close()
