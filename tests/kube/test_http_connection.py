"""What a connection does with sockets that are slow, closed early, or many."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from kube.https_server import Server, listening, serve, serve_bytes, transport_to
from paddlejob.kube import http_connection, http_socket
from paddlejob.kube.errors import TransportError

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def until(holds):
    while not holds():
        await asyncio.sleep(0.01)


async def test_a_request_larger_than_the_socket_takes_at_once():
    async def handler(request):
        return web.Response(text=str(len(await request.read())))

    body = b"x" * 20_000_000
    for tls in (True, False):
        async with serve(handler, tls=tls) as server, transport_to(server) as transport:
            assert (await transport.request("POST", "/", body=body)).body == b"20000000"


async def test_a_server_waits_while_nobody_reads(monkeypatch):
    monkeypatch.setattr(http_connection, "_UNREAD_LIMIT", 100_000)
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
        await asyncio.wait_for(until(lambda: stream._connection._paused), 10)
        assert sent < everything
        assert sum([len(chunk) async for chunk in stream.chunks()]) == everything


async def test_a_connection_that_the_server_has_closed_is_not_used_again():
    asked = 0

    async def talk(reader, writer):
        nonlocal asked
        asked += 1
        writer.write(ANSWER)
        await writer.drain()

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        for _ in range(3):
            assert (await transport.request("GET", "/")).body == b"ok"
            await asyncio.wait_for(until(lambda: not transport._route.pool._idle), 10)
    assert asked == 3


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ANSWER + ANSWER, id="the server talks too much"),
        pytest.param(ANSWER.replace(b"\r\n", b"\r\nConnection: close\r\n", 1), id="it keeps nothing alive"),
    ],
)
async def test_a_connection_that_is_not_asked_again(answer):
    connections = 0

    async def talk(reader, writer):
        nonlocal connections
        connections += 1
        writer.write(answer)
        await asyncio.Event().wait()

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        for _ in range(3):
            assert (await transport.request("GET", "/")).body == b"ok"
    assert connections == 3


async def test_a_request_given_up_takes_its_connection_along():
    closed = asyncio.Event()

    async def talk(reader, writer):
        await reader.read()
        closed.set()

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        with pytest.raises(TransportError, match="gave no answer in time"):
            await transport.request("GET", "/", timeout_seconds=0.1)
        await asyncio.wait_for(closed.wait(), 10)


async def test_an_answer_that_nobody_took_is_not_taken_for_the_next():
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    connection = http_connection.Connection(ours, on_lost=lambda _: None)
    with theirs:
        given_up = asyncio.create_task(connection.ask(b"first"))
        await asyncio.sleep(0)
        theirs.sendall(ANSWER)
        connection._readable()
        given_up.cancel()
        await asyncio.wait([given_up])
        assert connection.reusable
        second = asyncio.create_task(connection.ask(b"second"))
        await asyncio.sleep(0)
        theirs.sendall(ANSWER.replace(b"ok", b"no"))
        assert (await second).body == b"no"
    connection.close()


async def test_plain_http_is_asked_of_the_proxy():
    heads = []

    async def talk(reader, writer):
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(ANSWER)
        await writer.drain()

    async with listening(talk) as port:
        there, proxy = "http://kube.test:8080/prefix", f"http://me:hunter2@127.0.0.1:{port}"
        async with transport_to(Server(), server=there, proxy_url=proxy) as transport:
            assert (await transport.request("GET", "/api")).body == b"ok"
    assert heads[0].startswith("GET http://kube.test:8080/prefix/api HTTP/1.1\r\nHost: kube.test:8080\r\n")
    assert "Proxy-Authorization: Basic " in heads[0]


def addresses(monkeypatch, *hosts):
    """Give the name kube.test some addresses."""
    lookup = socket.getaddrinfo

    def answer(host, port, *_, flags=0, **options):
        if host == "kube.test" and flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        names = hosts if host == "kube.test" else [host]
        return [found for name in names for found in lookup(name, port, flags=flags, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


async def test_the_second_address_is_taken_when_the_first_refuses(monkeypatch):
    async with serve() as server:
        port = urlsplit(server.url).port
        addresses(monkeypatch, "127.0.0.9", "127.0.0.1")
        async with transport_to(
            server, server=f"https://kube.test:{port}", tls_server_name="kubernetes.test"
        ) as it:
            assert (await it.request("GET", "/")).status == 200


async def test_the_second_address_is_tried_when_the_first_is_silent(monkeypatch):
    monkeypatch.setattr(http_socket, "_ANOTHER_ADDRESS_AFTER_SECONDS", 0.05)
    connect = http_socket._connect_to

    async def silent_at_first(address):
        if address[4][0] == "127.0.0.9":
            await asyncio.Event().wait()
        return await connect(address)

    monkeypatch.setattr(http_socket, "_connect_to", silent_at_first)
    async with serve() as server:
        addresses(monkeypatch, "127.0.0.9", "127.0.0.1")
        sock = await http_socket.connect(urlsplit(server.url.replace("127.0.0.1", "kube.test")))
        assert sock.getpeername()[0] == "127.0.0.1"
        sock.close()


async def test_when_no_address_answers_the_first_one_is_blamed(monkeypatch):
    addresses(monkeypatch, "127.0.0.9", "127.0.0.8")
    with pytest.raises(OSError, match=r"127\.0\.0\.9"):
        await http_socket.connect(urlsplit("https://kube.test:1"))


async def test_an_unknown_name(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with transport_to(Server(), server="https://kube.invalid") as transport:
        with pytest.raises(
            TransportError, match=r"cannot reach https://kube\.invalid: Name or service not known"
        ):
            await transport.request("GET", "/")
