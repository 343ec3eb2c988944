"""WebSockets to pods, over the transport's own TLS and credentials."""

from __future__ import annotations

import pytest
from aiohttp import web

from kube.https_server import serve, transport_to
from kube.scripted_transport import ScriptedTransport
from paddlejob.kube.client import Client
from paddlejob.kube.errors import ForbiddenError, TransportError, UpgradeRefusedError
from paddlejob.kube.transport.cluster import User

QUERY = [("command", "echo"), ("command", "a b")]
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")


async def echo(request: web.Request) -> web.StreamResponse:
    """Send every message back, and end at the word `end`; tell the query first."""
    socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
    await socket.prepare(request)
    await socket.send_str(request.query_string)
    async for message in socket:
        if message.data == b"end":
            break
        if message.data == b"break":
            request.transport.abort()
        await socket.send_bytes(message.data)
    await socket.close()
    return socket


def opened(client: Client):
    return client.pod_websocket("default", "a", "exec", QUERY, PROTOCOLS)


async def test_messages_go_both_ways():
    async with serve(echo) as server, transport_to(server, user=User(token="t")) as transport:
        async with opened(Client(transport)) as socket:
            assert socket.protocol == "v4.channel.k8s.io"
            messages = socket.messages()
            assert await anext(messages) == b"command=echo&command=a b"
            await socket.send(b"x" * 1_000_000)
            assert await anext(messages) == b"x" * 1_000_000
            await socket.send(b"end")
            assert [message async for message in messages] == []
        (request,) = server.requests
        assert request.path == "/api/v1/namespaces/default/pods/a/exec"
        assert request.headers["Authorization"] == "Bearer t"


async def test_a_broken_connection_ends_the_messages():
    async with serve(echo) as server, transport_to(server) as transport, opened(Client(transport)) as socket:
        messages = socket.messages()
        await anext(messages)
        await socket.send(b"break")
        assert [message async for message in messages] == []


async def test_a_message_that_is_no_websocket_frame_is_an_error():
    async def garbage(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=PROTOCOLS)
        await socket.prepare(request)
        request.transport.write(b"\xff\xff\xff\xff")
        await socket.receive()
        return socket

    async with serve(garbage) as server, transport_to(server) as transport:
        with pytest.raises(TransportError, match="the connection broke"):
            async with opened(Client(transport)) as socket:
                [message async for message in socket.messages()]


async def test_a_refusal_has_the_reason_of_the_server():
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "code": 403, "message": "not you"}, status=403)

    async with serve(refuse) as server, transport_to(server) as transport:
        with pytest.raises(ForbiddenError, match="not you"):
            async with opened(Client(transport)):
                pass


async def test_a_server_without_websockets_is_named():
    async with serve() as server, transport_to(server) as transport:
        with pytest.raises(UpgradeRefusedError, match="refused to open a WebSocket: HTTP 200"):
            await transport.websocket("/", query=(), protocols=PROTOCOLS).__aenter__()


async def test_an_expired_token_is_renewed(tmp_path):
    token = tmp_path / "token"
    token.write_text("old")

    async def only_new(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] != "Bearer new":
            token.write_text("new")
            return web.Response(status=401)
        return await echo(request)

    user = User(token_file=token)
    async with serve(only_new) as server, transport_to(server, user=user) as transport:
        opening = opened(Client(transport))
        async with opening as socket:
            await socket.send(b"end")


async def test_an_unreachable_server_is_an_error_of_the_transport():
    async with serve() as server, transport_to(server) as transport:
        server.url = ""
    with pytest.raises(TransportError, match="closed"):
        async with opened(Client(transport)):
            pass


async def test_a_transport_without_websockets_raises_an_error():
    with pytest.raises(TransportError, match="does not support WebSockets"):
        async with opened(Client(ScriptedTransport())):
            pass
