from __future__ import annotations

import base64

import pytest

from kube.https_server import OTHER_CA, connect_proxy, lines_of, serve, transport_to
from paddlejob.kube.errors import TransportError, TransportTimeoutError


async def test_requests_and_streams_go_through_the_proxy():
    async with (
        serve() as server,
        connect_proxy() as proxy,
        transport_to(server, proxy_url=proxy.url) as transport,
    ):
        assert (await transport.request("GET", "/")).status == 200
        assert await lines_of(transport) == [b"{}"]
    assert set(proxy.targets) == {server.url.removeprefix("https://")}


async def test_the_proxy_resolves_the_name():
    async with serve() as server, connect_proxy() as proxy:
        port = server.url.rpartition(":")[2]
        there = f"https://kubernetes.test:{port}"
        async with transport_to(server, server=there, proxy_url=proxy.url) as transport:
            assert (await transport.request("GET", "/")).status == 200
    assert proxy.targets == [f"kubernetes.test:{port}"]


async def test_the_name_to_expect_counts_behind_a_proxy():
    async with serve() as server, connect_proxy() as proxy:
        config = {"proxy_url": proxy.url, "tls_server_name": "kubernetes.test"}
        async with transport_to(server, **config) as transport:
            assert (await transport.request("GET", "/")).status == 200
        async with transport_to(server, **config | {"tls_server_name": "elsewhere.test"}) as transport:
            with pytest.raises(TransportError, match=r"is not trusted: .*elsewhere\.test"):
                await transport.request("GET", "/")


async def test_the_proxy_is_not_trusted_with_the_content():
    async with serve() as server, connect_proxy() as proxy:
        config = {"proxy_url": proxy.url, "certificate_authority": OTHER_CA}
        async with transport_to(server, **config) as transport:
            with pytest.raises(TransportError, match="is not trusted"):
                await transport.request("GET", "/")
    assert server.requests == []


async def test_credentials_for_the_proxy_stay_there():
    async with serve() as server, connect_proxy() as proxy:
        proxy_url = f"http://me:hunter2@{proxy.address}"
        async with transport_to(server, proxy_url=proxy_url) as transport:
            await transport.request("GET", "/")
    expected = base64.b64encode(b"me:hunter2").decode().lower()
    assert proxy.credentials == [f"proxy-authorization: basic {expected}"]
    assert "Proxy-Authorization" not in server.requests[0].headers
    assert "Authorization" not in server.requests[0].headers


async def test_a_proxy_that_refuses():
    async with serve() as server, connect_proxy("403 Forbidden") as proxy:
        sentence = f"^proxy {proxy.url} is unable to connect to {server.url}: 403 Forbidden$"
        async with transport_to(server, proxy_url=f"http://me:hunter2@{proxy.address}") as transport:
            with pytest.raises(TransportError, match=sentence):
                await transport.request("GET", "/")


async def test_a_proxy_that_is_down():
    async with serve() as server:
        async with connect_proxy() as proxy:
            pass
        async with transport_to(server, proxy_url=f"http://me:hunter2@{proxy.address}") as transport:
            with pytest.raises(
                TransportError, match=f"^unable to connect to proxy {proxy.url}: connection refused$"
            ) as caught:
                await transport.request("GET", "/")
    assert "hunter2" not in str(caught.value)


async def test_a_proxy_that_hangs():
    async with serve() as server, connect_proxy(hang=True) as proxy:
        options = {"stream_open_timeout_seconds": 0.2}
        async with transport_to(server, options=options, proxy_url=proxy.url) as transport:
            with pytest.raises(TransportTimeoutError):
                await transport.request("GET", "/", timeout_seconds=0.2)
            with pytest.raises(TransportTimeoutError):
                await lines_of(transport)
