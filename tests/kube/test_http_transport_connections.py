"""What the transport does with connections that are slow, closed early, reused, or many."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from kube.https_server import Server, listening, serve, serve_bytes, transport_to
from paddlejob.kube.client import Client
from paddlejob.kube.errors import TransportError, TransportTimeoutError
from paddlejob.kube.resource import PODS
from tests.support.waiting import eventually_async

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def open_sockets(transport):
    return [sock for sock in transport._sockets if sock.fileno() >= 0]


async def test_a_request_larger_than_the_socket_buffer():
    async def handler(request):
        return web.Response(text=str(len(await request.read())))

    body = b"x" * 20_000_000
    for tls in (True, False):
        async with serve(handler, tls=tls) as server, transport_to(server) as transport:
            assert (await transport.request("POST", "/", body=body)).body == b"20000000"


async def test_a_slow_reader_blocks_the_server():
    sent, everything = 0, 50_000_000

    async def handler(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < everything:
            await response.write(b"x" * 1_000_000)
            sent += 1_000_000
        return response

    async with serve(handler) as server, transport_to(server) as transport, transport.stream("/") as stream:
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < everything
        assert sum([len(chunk) async for chunk in stream.chunks()]) == everything


async def test_a_connection_that_the_server_has_closed_is_not_used_again():
    connections = 0

    async def talk(reader, writer):
        nonlocal connections
        connections += 1
        writer.write(OK)
        await writer.drain()

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        for _ in range(3):
            assert (await transport.request("GET", "/")).body == b"{}"
            await eventually_async(lambda: not open_sockets(transport))
    assert connections == 3


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK + OK, id="more than was asked for"),
        pytest.param(OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1), id="Connection: close"),
    ],
)
async def test_a_connection_that_is_not_used_again(answer):
    connections = 0

    async def talk(reader, writer):
        nonlocal connections
        connections += 1
        writer.write(answer)
        await asyncio.Event().wait()

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        for _ in range(3):
            assert (await transport.request("GET", "/")).body == b"{}"
    assert connections == 3


async def test_unexpected_data_on_an_idle_connection_is_not_the_next_response():
    async def talk(reader, writer):
        writer.write(OK)
        await asyncio.wait_for(received.wait(), 20)
        writer.write(OK.replace(b"{}", b"[]"))
        await asyncio.Event().wait()

    received = asyncio.Event()
    async with serve_bytes(talk) as server, transport_to(server) as transport:
        assert (await transport.request("GET", "/")).body == b"{}"
        ((idle, _),) = next(iter(transport._session.connector._conns.values()))
        received.set()
        await eventually_async(lambda: idle.should_close)
        assert (await transport.request("GET", "/")).body == b"{}"


async def test_a_timed_out_request_closes_its_connection():
    closed = asyncio.Event()

    async def talk(reader, writer):
        await reader.read()
        closed.set()

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        with pytest.raises(TransportError, match="timed out"):
            await transport.request("GET", "/", timeout_seconds=0.1)
        async with asyncio.timeout(10):
            await closed.wait()


@pytest.mark.parametrize("seed", range(3))
async def test_a_cancelled_request_never_gives_its_response_to_another(seed):
    rng = random.Random(seed)

    async def handler(request):
        await asyncio.sleep(rng.random() / 50)
        return web.Response(text=request.path)

    async def one(transport, number):
        response = await transport.request("GET", f"/{number}", timeout_seconds=rng.choice([0.01, 10]))
        assert response.body == b"/%d" % number

    async with serve(handler) as server, transport_to(server, options={"connection_limit": 4}) as transport:
        tasks = []
        for number in range(200):
            tasks.append(asyncio.create_task(one(transport, number)))
            await asyncio.sleep(rng.random() / 200)
            if rng.random() < 0.3:
                rng.choice(tasks).cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), TransportTimeoutError, asyncio.CancelledError}
    assert results.count(None) > 20


async def test_streams_do_not_count_against_the_limit():
    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        if request.path == "/watch":
            await asyncio.Event().wait()
        return response

    async with (
        serve(handler) as server,
        transport_to(server, options={"connection_limit": 1}) as transport,
        transport.stream("/watch") as first,
        transport.stream("/watch") as second,
    ):
        assert await anext(first.chunks()) == await anext(second.chunks()) == b"first\n"
        assert (await transport.request("GET", "/")).body == b"first\n"


class Hasty:
    """Closes each connection when the second request arrives on it, as a server does whose patience ends."""

    def __init__(self):
        self.methods = []

    async def __call__(self, reader, writer):
        writer.write(OK)
        self.methods.append((await reader.readuntil(b"\r\n\r\n")).split()[0].decode())


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
async def test_nothing_is_sent_twice_when_a_reused_connection_is_closed(method):
    hasty = Hasty()
    async with serve_bytes(hasty) as server, transport_to(server) as transport:
        await transport.request("GET", "/")
        with pytest.raises(TransportError, match="closed the connection without a response"):
            await transport.request(method, "/", body=None if method == "GET" else b"{}")
    assert hasty.methods == [method]


async def test_a_client_reads_again_when_a_reused_connection_is_closed():
    hasty = Hasty()
    async with serve_bytes(hasty) as server, transport_to(server) as transport:
        await transport.request("GET", "/")
        assert await Client(transport).get(PODS, "default", "a") == {}
    assert hasty.methods == ["GET"]


async def test_plain_http_is_sent_to_the_proxy():
    heads = []

    async def talk(reader, writer):
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(OK)
        await writer.drain()

    async with listening(talk) as port:
        there, proxy = "http://kube.test:8080/prefix", f"http://me:hunter2@127.0.0.1:{port}"
        async with transport_to(Server(), server=there, proxy_url=proxy) as transport:
            assert (await transport.request("GET", "/api")).body == b"{}"
    assert heads[0].startswith("GET http://kube.test:8080/prefix/api HTTP/1.1\r\nHost: kube.test:8080\r\n")
    assert "Proxy-Authorization: Basic " in heads[0]


def addresses(monkeypatch, *hosts):
    """Give the name kube.test some addresses; uvloop does not ask Python's socket module."""

    async def answer(host, port, **options):
        names = hosts if host == "kube.test" else [host]
        return [found for name in names for found in socket.getaddrinfo(name, port, **options)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answer)


async def test_the_second_address_is_used_if_the_first_refuses(monkeypatch):
    async with serve() as server:
        port = urlsplit(server.url).port
        addresses(monkeypatch, "127.0.0.9", "127.0.0.1")
        there = {"server": f"https://kube.test:{port}", "tls_server_name": "kubernetes.test"}
        async with transport_to(server, **there) as transport:
            assert (await transport.request("GET", "/")).status == 200


async def test_an_unknown_name(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    proxied = {"server": "https://kube.invalid", "proxy_url": "http://proxy.invalid:1"}
    for there, peer in (
        ({"server": "https://kube.invalid"}, "https://kube.invalid"),
        (proxied, "proxy http://proxy.invalid:1"),
    ):
        async with transport_to(Server(), **there) as transport:
            with pytest.raises(
                TransportError, match=f"^unable to connect to {peer}: Name or service not known$"
            ):
                await transport.request("GET", "/")


async def test_a_peer_that_vanishes_is_noticed_by_the_kernel():
    async with serve() as server, transport_to(server) as transport:
        await transport.request("GET", "/")
        (sock,) = open_sockets(transport)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        tcp = {
            name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        }
    assert tcp == {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


@pytest.mark.parametrize("tls", [True, False])
async def test_closing_while_requests_wait_leaves_nothing_open(tls):
    asked = asyncio.Event()

    async def handler(request):
        asked.set()
        await asyncio.Event().wait()

    async with (
        serve(handler, tls=tls) as server,
        transport_to(server, options={"connection_limit": 3}) as transport,
    ):
        waiting = [asyncio.create_task(transport.request("GET", "/")) for _ in range(20)]
        await asked.wait()
        await transport.close()
        assert open_sockets(transport) == []
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(result) for result in results] == [f"the transport to {server.url} is closed"] * 20
        assert {type(result) for result in results} == {TransportError}
        assert open_sockets(transport) == []
    gc.collect()


async def test_closing_while_connecting_leaves_no_socket_open():
    accepted = asyncio.Event()

    async def talk(reader, writer):
        accepted.set()
        await asyncio.Event().wait()

    async with listening(talk) as port:
        there = {"server": f"https://127.0.0.1:{port}"}
        async with transport_to(Server(), **there) as transport:
            waiting = [asyncio.create_task(transport.request("GET", "/")) for _ in range(5)]
            await accepted.wait()
            await transport.close()
            assert open_sockets(transport) == []
            for task in waiting:
                with pytest.raises(TransportError, match="is closed"):
                    await task
    gc.collect()


async def test_closing_while_a_name_is_looked_up(monkeypatch):
    looked_up = asyncio.Event()

    async def silent(*_, **__):
        looked_up.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", silent)
    async with transport_to(Server(), server="https://kube.test") as transport:
        waiting = [asyncio.create_task(transport.request("GET", "/")) for _ in range(5)]
        await looked_up.wait()
        await transport.close()
        for task in waiting:
            with pytest.raises(TransportError, match="is closed"):
                await task


async def test_closing_ends_streams_whether_read_or_not():
    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await asyncio.Event().wait()

    async def read(transport, begun):
        async with transport.stream("/") as stream:
            async for _ in stream.chunks():
                begun.set()

    async with serve(handler) as server, transport_to(server) as transport:
        begun = asyncio.Event()
        reading = asyncio.create_task(read(transport, begun))
        await begun.wait()
        async with transport.stream("/") as unread:
            chunks = unread.chunks()
            assert await anext(chunks) == b"first\n"
            await transport.close()
            assert open_sockets(transport) == []
            with pytest.raises(TransportError, match="is closed"):
                await anext(chunks)
        with pytest.raises(TransportError, match="is closed"):
            await reading


async def test_a_server_without_tls_shutdown_does_not_keep_the_socket_open():
    """The server is half closed and holds on; closing does not wait for it."""
    asked = asyncio.Event()

    async def talk(reader, writer):
        asked.set()
        await asyncio.Event().wait()

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        request = asyncio.create_task(transport.request("GET", "/"))
        await asked.wait()
        request.cancel()
        await asyncio.wait([request])
        await transport.close()
        assert open_sockets(transport) == []
