"""Simple reads over the standard library; everything else is what HttpTransport does, errors too."""

from __future__ import annotations

import subprocess
import sys

import pytest
from aiohttp import web

from kube.https_server import CA, DATA, OTHER_CA, lines_of, serve, shown_name
from paddlejob.kube.errors import TransportError
from paddlejob.kube.transport import quick
from paddlejob.kube.transport.cluster import ClusterConfig, Impersonation, User
from paddlejob.kube.transport.quick import QuickTransport


@pytest.fixture
async def transport_to():
    """Return transports, which are closed at the end."""
    made: list[QuickTransport] = []

    def make(server, **config) -> QuickTransport:
        options = {"server": server.url, "certificate_authority": CA} | config
        transport = QuickTransport(ClusterConfig(**options))
        made.append(transport)
        return transport

    yield make
    for transport in made:
        await transport.close()


def is_quick(transport: QuickTransport) -> bool:
    return transport._full is None


async def test_a_read_needs_no_more_than_the_standard_library(transport_to):
    async with serve() as server:
        transport = transport_to(server, user=User(token="t"))
        response = await transport.request("GET", "/api", query={"labelSelector": "a=b c"})
        assert (response.status, response.body, is_quick(transport)) == (200, b"{}", True)
        assert response.headers["content-type"].startswith("application/json")
        (request,) = server.requests
        assert request.query == {"labelSelector": "a=b c"}
        assert request.headers["Authorization"] == "Bearer t"


async def test_a_client_certificate_is_shown(transport_to):
    user = User(
        client_certificate=(DATA / "client.crt").read_bytes(), client_key=(DATA / "client.key").read_bytes()
    )
    async with serve(client_certificates=True) as server:
        transport = transport_to(server, user=user)
        await transport.request("GET", "/")
        assert (shown_name(server.requests[0]), is_quick(transport)) == ("client", True)


async def test_plain_http_and_a_path_before_the_api_are_understood(transport_to):
    async with serve(tls=False) as server:
        server.url += "/prefix/"
        transport = transport_to(server, certificate_authority=None)
        await transport.request("GET", "/api")
        assert (server.requests[0].path, is_quick(transport)) == ("/prefix/api", True)


async def test_refusals_of_the_server_are_responses(transport_to):
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({"message": "no"}, status=403)

    async with serve(refuse) as server:
        transport = transport_to(server)
        assert (await transport.request("GET", "/")).status == 403
        assert is_quick(transport)


async def test_writes_and_streams_are_left_to_the_other(transport_to):
    async with serve() as server:
        transport = transport_to(server)
        assert (await transport.request("POST", "/", body=b"{}")).status == 200
        assert not is_quick(transport)
        assert len(server.requests) == 1, "a write is sent once"
        assert await lines_of(transport_to(server)) == [b"{}"]


async def test_a_refused_token_is_renewed_by_the_other(transport_to, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")

    async def only_new(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] == "Bearer new":
            return web.json_response({})
        token.write_text("new")
        return web.Response(status=401)

    async with serve(only_new) as server:
        transport = transport_to(server, user=User(token_file=token))
        assert (await transport.request("GET", "/")).status == 200


async def test_a_large_response_is_left_to_the_other(transport_to, monkeypatch):
    monkeypatch.setattr(quick, "RESPONSE_SIZE_LIMIT", 1)
    async with serve() as server:
        transport = transport_to(server)
        assert (await transport.request("GET", "/")).body == b"{}"
        assert not is_quick(transport)


@pytest.mark.parametrize(
    "unusual",
    [{"user": User(impersonate=Impersonation(user="eve"))}, {"tls_server_name": "kubernetes.test"}],
    ids=["impersonation", "tls-server-name"],
)
async def test_unusual_requests_use_the_http_transport(transport_to, unusual):
    async with serve() as server:
        transport = transport_to(server, **unusual)
        assert (await transport.request("GET", "/")).status == 200
        assert not is_quick(transport)


async def test_errors_are_the_same_as_in_the_http_transport(transport_to):
    async with serve() as server:
        untrusting = transport_to(server, certificate_authority=OTHER_CA)
        with pytest.raises(TransportError, match=r"certificate is not trusted: .*; check"):
            await untrusting.request("GET", "/")
        gone = transport_to(server)
    with pytest.raises(TransportError, match=f"unable to connect to {server.url}: connection refused"):
        await gone.request("GET", "/")


def test_help_and_lists_do_not_import_aiohttp():
    for module in ("paddlejob.cli.kubectl", "paddlejob.cli.show.get", "paddlejob.client.cluster"):
        code = f"import sys, {module}; sys.exit('aiohttp' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, module
