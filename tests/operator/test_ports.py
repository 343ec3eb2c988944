"""A port of the operator: connections, requests and bytes are bounded before authentication."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from paddlejob.operator.ports import http, server
from paddlejob.operator.ports.http import Endpoint, Request, Response
from paddlejob.operator.ports.server import Limits
from tests.support.waiting import eventually_async

WIDE = Limits(connections=64, per_source=64)
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


async def echo(request: Request) -> Response:
    if request.token == "wrong":
        return Response(401, b"no")
    if request.token == "bug":
        raise ZeroDivisionError
    return Response(200, await request.body() or b"hello", keep=bool(request.token))


async def large(_: Request) -> Response:
    return Response(200, b"x" * (1 << 22))


async def named(request: Request) -> Response:
    return Response(200, str(request.placeholders).encode())


ROUTES = [
    Endpoint("POST", "/echo", echo),
    Endpoint("GET", "/large", large),
    Endpoint("GET", "/jobs/{namespace}/{name}", named),
]


@asynccontextmanager
async def opened(limits: Limits = WIDE) -> AsyncIterator[int]:
    async with server.serve("127.0.0.1:0", ROUTES, limits) as port:
        yield port


async def exchange(port: int, sent: bytes, *, source: str = "127.0.0.1") -> bytes:
    """Send bytes and return everything that is received until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def post(body: bytes = b"hi", *headers: str, path: str = "/echo") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


REQUESTS = {
    "a body": (post(), 200, b"hi"),
    "no body": (b"POST /echo HTTP/1.0\r\n\r\n", 200, b"hello"),
    "a query": (post(path="/echo?x=y"), 200, b"hi"),
    "variable parts": (b"GET /jobs/a/b HTTP/1.1\r\n\r\n", 200, b"{'namespace': 'a', 'name': 'b'}"),
    "another path": (post(path="/jobs/a/b/c"), 404, b"Not Found\n"),
    "another method": (b"GET /echo HTTP/1.1\r\n\r\n", 405, b"Method Not Allowed\n"),
    "a refused token, before its body": (
        post(b"", "Authorization: Bearer wrong").replace(b"Length: 0", b"Length: 99999"),
        401,
        b"no",
    ),
    "a body that is too large": (
        post(b"x" * 70_000),
        413,
        b"the body is limited to 65536 bytes\n",
    ),
    "chunks": (
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        411,
        b"send the body with a Content-Length\n",
    ),
    "two lengths": (post(b"hi", "Content-Length: 3"), 400, b"Content-Length must be one number\n"),
    "a negative length": (
        b"POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        400,
        b"Content-Length must be one number\n",
    ),
    "a head that is too large": (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431, None),
    "no HTTP": (b"\x16\x03\x01\x00\r\n\r\n", 400, b"Bad Request\n"),
    "a header without a name": (b"GET / HTTP/1.1\r\n: x\r\n\r\n", 400, b"Bad Request\n"),
    "a folded header": (b"GET / HTTP/1.1\r\nA: x\r\n y\r\n\r\n", 400, b"Bad Request\n"),
}
BUG = post(b"", "Authorization: Bearer bug")


@pytest.mark.parametrize(("sent", "status", "body"), REQUESTS.values(), ids=REQUESTS)
async def test_a_request_is_answered_and_the_connection_closed(sent: bytes, status: int, body: bytes | None):
    async with opened() as port:
        head, _, received = (await exchange(port, sent)).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Connection: close" in head
    assert body is None or received == body


async def test_a_connection_is_kept_after_authentication_only():
    async with opened() as port:
        known = post(b"1", "Authorization: Bearer right") + post(b"2", "Connection: close")
        assert (await exchange(port, known)).count(b"HTTP/1.1 200") == 2
        assert (await exchange(port, post(b"1") + post(b"2"))).count(b"HTTP/1.1 200") == 1


@LOOPS
@pytest.mark.parametrize("sent", [b"", b"GET / HT", post()[:-1]], ids=["silent", "half a head", "no body"])
async def test_a_slow_client_is_disconnected(sent: bytes, loop, monkeypatch):
    monkeypatch.setattr(server, "new_event_loop", loop)
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(http, "BODY_SECONDS", 0.1)
    async with opened() as port:
        assert b"200" not in await exchange(port, sent)


@LOOPS
async def test_connections_are_counted_when_they_are_accepted_for_each_source(loop, monkeypatch):
    monkeypatch.setattr(server, "new_event_loop", loop)
    async with opened(Limits(connections=8, per_source=4)) as port:
        with ExitStack() as stack:
            for _ in range(50):
                silent = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
                stack.enter_context(silent)
            assert b"200" not in await exchange(port, post(), source="127.0.0.2")
            assert b"200" in await exchange(port, post(), source="127.0.0.3")
        await eventually_async(lambda: exchange(port, post(), source="127.0.0.2"))


@LOOPS
async def test_sources_that_fill_a_port_give_way_to_another_source(loop, monkeypatch):
    monkeypatch.setattr(server, "new_event_loop", loop)
    monkeypatch.setattr(server, "HEAD_SECONDS", 60.0)
    monkeypatch.setattr(server, "GRACE_SECONDS", 60.0)
    async with opened(Limits(connections=8, per_source=4)) as port:
        with ExitStack() as stack:
            for source in ("127.0.0.2", "127.0.0.3"):
                for _ in range(8):
                    silent = socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
                    stack.enter_context(silent)
            for _ in range(8):
                assert b"200" in await exchange(port, post(), source="127.0.0.4")


@LOOPS
async def test_an_older_connection_makes_room_for_a_newer_one(loop, monkeypatch):
    """Otherwise silent clients keep others out until their time is up."""
    monkeypatch.setattr(server, "new_event_loop", loop)
    monkeypatch.setattr(server, "HEAD_SECONDS", 60.0)
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.05)
    async with opened(Limits(connections=4, per_source=4)) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        await eventually_async(lambda: exchange(port, post()))
        assert await asyncio.wait_for(silent[0][0].read(), 30) == b""
        for _, writer in silent:
            writer.close()


async def test_a_client_that_does_not_read_is_disconnected(monkeypatch):
    monkeypatch.setattr(server, "WRITE_SECONDS", 0.2)
    async with opened() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        # The system takes a part of it; the rest is given up.
        await eventually_async(lambda: not server_sockets(port))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1 << 22)
        writer.close()


def server_sockets(port: int) -> list[str]:
    """Return the connections that are established at a local port."""
    fields = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return [each[1] for each in fields if each[1].endswith(f":{port:04X}") and each[3] == "01"]


async def test_requests_do_not_fill_the_log(caplog):
    with caplog.at_level(logging.DEBUG, logger="paddlejob"):
        async with opened() as port:
            for sent in (*(sent for sent, _, _ in REQUESTS.values()), BUG):
                for _ in range(3):
                    await exchange(port, sent)
    assert [record.message for record in caplog.records] == ["bug in the operator: a request was not served"]


async def test_a_port_in_use_is_reported():
    async with opened() as port:
        with pytest.raises(OSError, match="in use"):
            async with server.serve(f"127.0.0.1:{port}", (), WIDE):
                pass


@pytest.mark.parametrize("address", ["localhost:0", "[::1]:0", "0.0.0.0:0"])
async def test_hosts_are_names_or_addresses_of_either_family(address: str):
    host = address.rpartition(":")[0].strip("[]")
    async with server.serve(address, ROUTES, WIDE) as port:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(post())
        assert b"200" in await reader.read()
        writer.close()
