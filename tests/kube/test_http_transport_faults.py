from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from aiohttp import web

from kube.https_server import Server, lines_of, listening, serve, serve_bytes, transport_to
from paddlejob.kube.decoding import split_lines
from paddlejob.kube.errors import TransportError, TransportTimeoutError
from paddlejob.kube.transport import http

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def saying(*parts, then="close", received=None):
    """A server that sends some bytes, waits until they are received, goes on, and closes, resets or hangs."""

    async def talk(reader, writer):
        for part in parts:
            writer.write(part)
            await writer.drain()
            if received is not None:
                await received.wait()
        if then == "hang":
            await asyncio.Event().wait()
        if then == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    return talk


def chunk(content):
    return b"%x\r\n%s\r\n" % (len(content), content)


async def read_all(transport, *, received=None, **options):
    """Return the lines that a stream gives, and the error that ends it."""
    lines = []
    try:
        async with transport.stream("/", **options) as stream:
            async for line in split_lines(stream.chunks()):
                lines.append(line)
                if received is not None:
                    received.set()
    except TransportError as error:
        return lines, type(error)
    return lines, None


async def test_a_stream_is_read_as_it_arrives():
    go_on = asyncio.Event()

    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await go_on.wait()
        await response.write(b"second\n")
        return response

    async with serve(handler) as server, transport_to(server) as transport, transport.stream("/") as stream:
        lines = split_lines(stream.chunks())
        assert await anext(lines) == b"first"
        go_on.set()
        assert [line async for line in lines] == [b"second"]


async def test_a_stream_has_a_status_and_headers_and_is_not_compressed():
    async def handler(request):
        return web.Response(status=410, text="gone", headers={"Retry-After": "1"})

    async with serve(handler) as server, transport_to(server) as transport:
        opened = transport.stream("/", query={"watch": "true"})
        async with opened as stream:
            assert (stream.status, stream.headers["retry-after"]) == (410, "1")
    assert server.requests[0].headers["Accept-Encoding"] == "identity"
    assert server.requests[0].query["watch"] == "true"


async def test_a_line_of_megabytes():
    line = b"x" * 5_000_000

    async def handler(request):
        return web.Response(body=line + b"\nnext")

    async with serve(handler) as server, transport_to(server) as transport:
        assert await lines_of(transport) == [line, b"next"]


@pytest.mark.parametrize(
    ("parts", "then", "lines", "error"),
    [
        pytest.param([chunk(b"a\n"), b"0\r\n\r\n"], "close", [b"a"], None, id="the end of the stream"),
        pytest.param([chunk(b"a\nhal"), b"0\r\n\r\n"], "close", [b"a", b"hal"], None, id="an end in a line"),
        pytest.param([chunk(b"a\nhal")], "close", [b"a"], TransportError, id="a cut inside a line"),
        pytest.param([b"5\r\na\nb"], "close", [b"a"], TransportError, id="a cut inside a chunk"),
        pytest.param([chunk(b"a\n")], "reset", [b"a"], TransportError, id="a reset"),
    ],
)
async def test_how_a_stream_ends(parts, then, lines, error):
    received = asyncio.Event()
    first, *rest = parts
    talk = saying(CHUNKED + first, *rest, then=then, received=received)
    async with serve_bytes(talk) as server, transport_to(server) as transport:
        assert await read_all(transport, received=received) == (lines, error)


async def test_a_stream_that_falls_silent():
    talk = saying(CHUNKED + chunk(b"a\n"), then="hang")
    async with serve_bytes(talk) as server, transport_to(server) as transport:
        opened = transport.stream("/", idle_timeout_seconds=0.2)
        async with opened as stream:
            chunks = stream.chunks()
            assert await anext(chunks) == b"a\n"
            with pytest.raises(TransportTimeoutError, match=f"{server.url} sent nothing for 0.2 seconds"):
                await anext(chunks)


async def test_junk_in_a_stream_ends_it(monkeypatch):
    monkeypatch.setattr(http, "_LIVENESS_CHECK_SECONDS", 0.1)
    received = asyncio.Event()
    talk = saying(CHUNKED + chunk(b"a\n"), b"junk\r\n", then="hang", received=received)
    async with serve_bytes(talk) as server, transport_to(server) as transport:
        assert await read_all(transport, received=received) == ([b"a"], TransportError)


async def test_idle_is_the_time_between_two_chunks():
    async def talk(reader, writer):
        writer.write(CHUNKED)
        for _ in range(10):
            await asyncio.sleep(0.15)
            writer.write(chunk(b"a\n"))
        writer.write(b"0\r\n\r\n")

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        assert await lines_of(transport, idle_timeout_seconds=1.0) == [b"a"] * 10


async def test_a_stream_that_does_not_begin():
    options = {"stream_open_timeout_seconds": 0.2}
    async with serve_bytes(saying(then="hang")) as server, transport_to(server, options=options) as transport:
        assert await read_all(transport) == ([], TransportTimeoutError)


@pytest.mark.parametrize(
    ("parts", "then", "kind", "sentence"),
    [
        pytest.param([], "hang", TransportTimeoutError, "^request to .* timed out$", id="no response"),
        pytest.param([CHUNKED], "hang", TransportTimeoutError, "^request to .* timed out$", id="no end"),
        pytest.param([], "close", TransportError, "closed the connection without a response", id="closed"),
        pytest.param([b"hello\r\n\r\n"], "close", TransportError, "failed: Bad status line", id="not HTTP"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"],
            "close",
            TransportError,
            "broke in the middle of a response",
            id="half",
        ),
        pytest.param([], "reset", TransportError, "failed: connection reset by peer$", id="reset"),
    ],
)
async def test_how_a_request_fails(parts, then, kind, sentence):
    async with serve_bytes(saying(*parts, then=then)) as server, transport_to(server) as transport:
        with pytest.raises(TransportError, match=sentence) as caught:
            await transport.request("POST", "/", body=b"{}", timeout_seconds=0.2 if then == "hang" else 60)
    assert type(caught.value) is kind
    assert server.url in str(caught.value)


def nobody():
    """Where no server listens."""
    server = Server()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server.url = f"https://127.0.0.1:{unused.getsockname()[1]}"
    return server


async def test_connection_refused():
    server = nobody()
    async with transport_to(server) as transport:
        with pytest.raises(TransportError, match=f"^unable to connect to {server.url}: connection refused$"):
            await transport.request("GET", "/")
        assert await read_all(transport) == ([], TransportError)


async def test_a_server_without_tls():
    async with listening(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
        server = Server()
        server.url = f"https://127.0.0.1:{port}"
        async with transport_to(server) as transport:
            with pytest.raises(
                TransportError,
                match=f"^unable to connect to {server.url}: TLS handshake failed: wrong version number",
            ):
                await transport.request("GET", "/")


async def test_a_connection_that_never_shakes_hands():
    async with listening(saying(then="hang")) as port:
        server = Server()
        server.url = f"https://127.0.0.1:{port}"
        async with transport_to(server, options={"connect_timeout_seconds": 0.2}) as transport:
            with pytest.raises(TransportTimeoutError):
                await transport.request("GET", "/")
            assert await read_all(transport) == ([], TransportTimeoutError)


async def test_errors_of_the_reader_are_its_own():
    async with serve() as server, transport_to(server) as transport:
        with pytest.raises(OSError, match="the disk is full"):
            async with transport.stream("/"):
                raise OSError("the disk is full")


async def test_a_cancelled_request_is_cancelled():
    async with serve_bytes(saying(then="hang")) as server, transport_to(server) as transport:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await transport.request("GET", "/")


async def test_leaving_a_stream_closes_its_connection():
    left = asyncio.Event()

    async def talk(reader, writer):
        writer.write(CHUNKED + chunk(b"a\n"))
        await reader.read()
        left.set()

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        async with transport.stream("/"):
            pass
        await asyncio.wait_for(left.wait(), 10)


async def test_after_closing_nothing_is_sent():
    async with serve() as server, transport_to(server) as transport:
        await transport.request("GET", "/")
        await transport.close()
        await transport.close()
        with pytest.raises(TransportError, match="is closed"):
            await transport.request("GET", "/")
        assert await read_all(transport) == ([], TransportError)


async def test_closing_ends_requests_in_flight():
    asked = asyncio.Event()

    async def talk(reader, writer):
        asked.set()
        await asyncio.Event().wait()

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        request = asyncio.create_task(transport.request("GET", "/"))
        await asked.wait()
        await transport.close()
        with pytest.raises(TransportError):
            await request
