from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from kube.https_server import OTHER_CA, serve, transport_to
from paddlejob.kube.errors import ConfigError, TransportError
from paddlejob.kube.transport.cluster import ClusterConfig, Impersonation, User
from paddlejob.kube.transport.http import HttpTransport


async def test_a_request_arrives_as_it_was_meant():
    async with serve() as server, transport_to(server, user=User(token="t")) as transport:
        await transport.request("POST", "/api/v1/pods", query={"dryRun": "All"}, body=b"{}")
    (request,) = server.requests
    assert (request.method, request.path_qs) == ("POST", "/api/v1/pods?dryRun=All")
    assert await request.read() == b"{}"
    headers = {
        name: request.headers[name] for name in ("Content-Type", "Authorization", "User-Agent", "Accept")
    }
    assert headers == {
        "Content-Type": "application/json",
        "Authorization": "Bearer t",
        "User-Agent": "paddlejob",
        "Accept": "application/json",
    }


async def test_a_response_has_body_code_and_headers():
    async def handler(request):
        return web.Response(status=429, text="slow down", headers={"Retry-After": "3"})

    async with serve(handler) as server, transport_to(server) as transport:
        response = await transport.request("GET", "/")
    assert (response.status, response.body, response.headers["retry-after"]) == (429, b"slow down", "3")


async def test_paths_and_queries_are_not_rewritten():
    async with serve() as server, transport_to(server) as transport:
        await transport.request("GET", "/a%2Fb/c:d", query={"labelSelector": "a=b+c, d in (e&f)"})
    (request,) = server.requests
    assert request.rel_url.raw_path == "/a%2Fb/c:d"
    assert request.query["labelSelector"] == "a=b+c, d in (e&f)"


async def test_a_path_before_the_api():
    async with serve() as server, transport_to(server, server=f"{server.url}/k8s/c-1") as transport:
        await transport.request("GET", "/api")
    assert server.requests[0].path == "/k8s/c-1/api"


async def test_content_types_and_user_agents():
    options = {"user_agent": "me/1"}
    async with serve() as server, transport_to(server, options=options) as transport:
        await transport.request("PATCH", "/", body=b"{}", content_type="application/merge-patch+json")
    headers = server.requests[0].headers
    assert (headers["Content-Type"], headers["User-Agent"]) == ("application/merge-patch+json", "me/1")


async def test_plain_http():
    async with serve(tls=False) as server, transport_to(server) as transport:
        assert (await transport.request("GET", "/")).status == 200


async def test_ipv6():
    async with serve(host="::1") as server, transport_to(server) as transport:
        assert (await transport.request("GET", "/")).status == 200


async def test_large_answers_may_be_compressed():
    async def handler(request):
        response = web.Response(text="x" * 1_000_000)
        response.enable_compression()
        return response

    async with serve(handler) as server, transport_to(server) as transport:
        response = await transport.request("GET", "/")
    assert response.headers["content-encoding"] == "gzip"
    assert len(response.body) == 1_000_000


async def test_redirects_are_not_followed():
    async def handler(request):
        raise web.HTTPFound("/elsewhere")

    async with serve(handler) as server, transport_to(server) as transport:
        assert (await transport.request("GET", "/")).status == 302
    assert len(server.requests) == 1


async def test_impersonation():
    jane = Impersonation(user="jane", uid="7", groups=("a", "b"), extra={"example.org/k": ("v", "w")})
    async with serve() as server, transport_to(server, user=User(impersonate=jane)) as transport:
        await transport.request("GET", "/")
    headers = server.requests[0].headers
    assert (headers["Impersonate-User"], headers["Impersonate-Uid"]) == ("jane", "7")
    assert headers.getall("Impersonate-Group") == ["a", "b"]
    assert headers.getall("Impersonate-Extra-example.org%2Fk") == ["v", "w"]


async def test_connections_are_used_again_and_limited():
    ports, busy, most = set(), 0, 0

    async def handler(request):
        nonlocal busy, most
        ports.add(request.transport.get_extra_info("peername")[1])
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0)
        busy -= 1
        return web.Response()

    async with serve(handler) as server, transport_to(server, options={"connection_limit": 3}) as transport:
        await asyncio.gather(*(transport.request("GET", "/") for _ in range(30)))
    assert most <= 3
    assert len(ports) <= 3


async def test_another_authority_is_refused():
    async with serve() as server, transport_to(server, certificate_authority=OTHER_CA) as transport:
        with pytest.raises(TransportError, match=r"is not trusted: .*; check certificate-authority"):
            await transport.request("GET", "/")
    assert server.requests == []


async def test_the_systems_authorities_do_not_know_it():
    async with serve() as server, transport_to(server, certificate_authority=None) as transport:
        with pytest.raises(TransportError, match="is not trusted"):
            await transport.request("GET", "/")


async def test_another_name_is_refused():
    async with serve() as server, transport_to(server, tls_server_name="elsewhere.test") as transport:
        with pytest.raises(TransportError, match=r"is not trusted: .*elsewhere\.test"):
            await transport.request("GET", "/")


async def test_the_name_to_expect_can_be_given():
    async with serve() as server, transport_to(server, tls_server_name="kubernetes.test") as transport:
        assert (await transport.request("GET", "/")).status == 200


async def test_insecure_trusts_anybody():
    config = {"certificate_authority": None, "insecure_skip_tls_verify": True, "tls_server_name": "any.test"}
    async with serve() as server, transport_to(server, **config) as transport:
        assert (await transport.request("GET", "/")).status == 200


def test_an_invalid_authority_is_reported_on_construction():
    with pytest.raises(ConfigError, match="not a PEM certificate"):
        HttpTransport(ClusterConfig(server="https://kube.test", certificate_authority=b"text"))


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {"server": "https://kube.test:many"},
            "the server: invalid URL 'https://kube.test:many': invalid port",
        ),
        ({"server": "https://kube.test:99999"}, "invalid port; write https://HOST:PORT"),
        ({"server": "kube.test:6443"}, "the server: invalid URL 'kube.test:6443'; write https://HOST:PORT"),
        ({"server": "https:///api"}, "invalid URL"),
        (
            {"server": "https://kube.test", "proxy_url": "http://me:secret@proxy.test:x"},
            "the proxy: invalid URL 'http://proxy.test:x': invalid port; write http://HOST:PORT",
        ),
    ],
)
def test_an_invalid_address_is_reported_on_construction(config, sentence):
    with pytest.raises(ConfigError, match=sentence):
        HttpTransport(ClusterConfig(**config))
