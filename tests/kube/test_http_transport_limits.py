"""What a hostile or broken server, or a broken configuration, cannot do to the process."""

from __future__ import annotations

import asyncio
import traceback
import tracemalloc
import zlib

import pytest
from aiohttp import web
from multidict import CIMultiDict

from kube.https_server import CA, Server, connect_proxy, listening, serve, serve_bytes, transport_to
from paddlejob.kube.errors import ConfigError, TransportError
from paddlejob.kube.transport.cluster import ClusterConfig, Impersonation, User
from paddlejob.kube.transport.fair_limiter import CONNECTION_LIMIT
from paddlejob.kube.transport.http import HttpTransport
from tests.support.waiting import eventually_async

MIB = 1 << 20


def bomb(size):
    """Return zeros, compressed a thousandfold."""
    packer, zeros = zlib.compressobj(wbits=zlib.MAX_WBITS | 16), bytes(MIB)
    return b"".join([packer.compress(zeros) for _ in range(size // MIB)]) + packer.flush()


async def peak_of(coroutine):
    """Return the error that a coroutine raises, and the most memory that it took."""
    tracemalloc.start()
    try:
        with pytest.raises(TransportError) as caught:
            await coroutine
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_a_compressed_bomb_is_not_unpacked():
    packed = bomb(100 * MIB)

    async def handler(request):
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    options = {"response_size_limit": 4 * MIB}
    async with serve(handler) as server, transport_to(server, options=options) as transport:
        sentence, peak = await peak_of(transport.request("GET", "/"))
    assert sentence == f"{server.url} sent a response of more than 4 MiB"
    assert peak < 16 * MIB


async def test_an_endless_body_is_refused():
    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(MIB))

    options = {"response_size_limit": 4 * MIB}
    async with serve(handler) as server, transport_to(server, options=options) as transport:
        sentence, peak = await peak_of(transport.request("GET", "/"))
    assert sentence == f"{server.url} sent a response of more than 4 MiB"
    assert peak < 24 * MIB


async def test_a_body_of_exactly_the_limit_is_accepted():
    async def handler(request):
        return web.Response(body=bytes(MIB))

    for limit, accepted in ((MIB, True), (MIB - 1, False)):
        options = {"response_size_limit": limit}
        async with serve(handler) as server, transport_to(server, options=options) as transport:
            if accepted:
                assert len((await transport.request("GET", "/")).body) == MIB
            else:
                with pytest.raises(TransportError, match="more than"):
                    await transport.request("GET", "/")


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"X-Long: " + b"x" * 100_000, id="one long header"),
        pytest.param(b"\r\n".join(b"X-%d: x" % number for number in range(10_000)), id="many headers"),
        pytest.param(b"HTTP/1.1 200 " + b"x" * 100_000, id="a long reason"),
    ],
)
async def test_a_head_has_a_limit(head):
    async def talk(reader, writer):
        begin = b"" if head.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n"
        writer.write(begin + head + b"\r\nContent-Length: 0\r\n\r\n")
        await asyncio.Event().wait()

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        with pytest.raises(TransportError, match=f"the connection to {server.url} failed: "):
            await transport.request("GET", "/", timeout_seconds=20)


async def test_a_response_may_have_a_warning_for_each_of_many_fields():
    async def handler(request):
        warnings = [("Warning", f'299 - "unknown field {number}"') for number in range(200)]
        return web.json_response({}, headers=CIMultiDict(warnings))

    async with serve(handler) as server, transport_to(server) as transport:
        assert (await transport.request("PATCH", "/", body=b"{}")).status == 200


async def test_a_head_that_trickles_in_is_refused_as_early():
    sent = 0

    async def talk(reader, writer):
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while True:
            writer.write(b"x")
            sent += 1
            await asyncio.sleep(0)

    async with serve_bytes(talk) as server, transport_to(server) as transport:
        with pytest.raises(TransportError, match="failed: Got more than"):
            await transport.request("GET", "/", timeout_seconds=60)
    assert sent < 20_000


async def test_a_header_that_cannot_be_sent_is_a_transport_error():
    user = User(impersonate=Impersonation(user="a\r\nX-Evil: 1"))
    async with serve() as server, transport_to(server, user=user) as transport:
        with pytest.raises(TransportError, match="header"):
            await transport.request("GET", "/")
        with pytest.raises(TransportError, match="header"):
            async with transport.stream("/"):
                pass
    assert server.requests == []


@pytest.mark.parametrize("name", ["api..example", ".example", f"{'a' * 64}.example"])
def test_an_invalid_host_name_is_reported_on_construction(name):
    with pytest.raises(ConfigError, match=r"the server: invalid URL .*: invalid host name"):
        HttpTransport(ClusterConfig(server=f"https://{name}:6443"))
    with pytest.raises(ConfigError, match="tls-server-name: invalid host name"):
        HttpTransport(ClusterConfig(server="https://kube.test", tls_server_name=name))


STRANGE_HOSTS = ["münchen.invalid", "a_b.invalid", "256.256.256.256", "127.1", "1", "[fe80::1%25x]"]


@pytest.mark.parametrize("host", STRANGE_HOSTS)
async def test_a_strange_host_name_is_a_transport_error(host):
    async with transport_to(Server(), server=f"https://{host}:1") as transport:
        with pytest.raises(TransportError):
            await transport.request("GET", "/", timeout_seconds=20)


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX-Evil: 1", "/ä", "/a\tb"])
async def test_a_path_that_is_not_encoded_is_not_sent(path):
    async with serve() as server, transport_to(server) as transport:
        with pytest.raises(TransportError, match="invalid path"):
            await transport.request("GET", path)
    assert server.requests == []


def everything_shown(error):
    return "".join(traceback.format_exception(error)) + repr(error) + repr(error.__cause__)


async def test_a_password_in_the_url_is_sent_and_never_shown():
    async with serve() as server:
        there = server.url.replace("https://", "https://me:hunter2@")
        async with transport_to(server, server=there) as transport:
            assert (await transport.request("GET", "/")).status == 200
        assert server.requests[0].headers["Authorization"] == "Basic bWU6aHVudGVyMg=="
        async with transport_to(server, server=there, user=User(token="t")) as transport:
            assert (await transport.request("GET", "/")).status == 200
        assert server.requests[1].headers["Authorization"] == "Bearer t"
    config = ClusterConfig(server=there, certificate_authority=CA, proxy_url=there)
    assert "hunter2" not in repr(config)
    async with transport_to(server, server=there) as transport:
        with pytest.raises(TransportError, match=f"unable to connect to {server.url}: ") as caught:
            await transport.request("GET", "/")
    assert "hunter2" not in everything_shown(caught.value)


async def test_a_password_does_not_travel_in_the_clear():
    async with serve(tls=False) as server:
        there = server.url.replace("http://", "http://me:hunter2@")
        async with transport_to(server, server=there) as transport:
            await transport.request("GET", "/")
    assert "Authorization" not in server.requests[0].headers


async def hang_up(reader, writer):
    """End a conversation at once."""


@pytest.mark.parametrize("refusal", ["", "407 Proxy Authentication Required", "no http"])
async def test_a_password_for_a_proxy_is_never_shown(refusal):
    async with serve() as server:
        proxy = listening(hang_up) if not refusal else connect_proxy(refusal)
        async with proxy as there:
            address = there.address if refusal else f"127.0.0.1:{there}"
            async with transport_to(server, proxy_url=f"http://me:hunter2@{address}") as transport:
                with pytest.raises(TransportError) as caught:
                    await transport.request("GET", "/")
    assert "hunter2" not in everything_shown(caught.value)
    assert "bWU6aHVudGVyMg" not in everything_shown(caught.value)


class HoldingServer:
    """Answers requests of the namespace `slow` only when released, all others immediately."""

    def __init__(self):
        self.held = 0
        self.released = asyncio.Event()

    async def __call__(self, request):
        if "/namespaces/slow/" in request.path:
            self.held += 1
            await self.released.wait()
        return web.json_response({})


QUICK_PATHS = {
    "another namespace": "/api/v1/namespaces/quick/pods",
    "no namespace": "/apis/batch.paddlepaddle.org/v1/paddlejobs",
    "a token review": "/apis/authentication.k8s.io/v1/tokenreviews",
}


@pytest.mark.parametrize("path", QUICK_PATHS.values(), ids=QUICK_PATHS.keys())
async def test_slow_requests_of_one_namespace_hold_up_no_other(path):
    handler = HoldingServer()
    slow_path = "/api/v1/namespaces/slow/pods"
    async with serve(handler, tls=False) as server, transport_to(server) as transport:
        slow = [asyncio.create_task(transport.request("POST", slow_path)) for _ in range(320)]
        await eventually_async(lambda: handler.held == CONNECTION_LIMIT // 2)
        async with asyncio.timeout(20):
            for _ in range(3):
                assert (await transport.request("GET", path)).status == 200
        assert handler.held == CONNECTION_LIMIT // 2
        handler.released.set()
        assert {each.status for each in await asyncio.gather(*slow)} == {200}


async def test_the_timeout_of_a_request_begins_with_its_connection():
    handler = HoldingServer()
    options = {"connection_limit": 1}
    async with serve(handler, tls=False) as server, transport_to(server, options=options) as transport:
        slow = asyncio.create_task(transport.request("POST", "/api/v1/namespaces/slow/pods"))
        await eventually_async(lambda: handler.held == 1)
        quick = asyncio.create_task(transport.request("GET", "/api/v1/namespaces/quick/pods"))
        under_way = transport._attempts.deadlines
        await eventually_async(lambda: len(under_way) == 2)
        assert sorted(each.when() is None for each in under_way) == [False, True]
        handler.released.set()
        assert (await quick).status == (await slow).status == 200
