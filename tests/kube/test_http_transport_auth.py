from __future__ import annotations

import json

import pytest
from aiohttp import web

from kube.https_server import DATA, lines_of, serve, shown_name, transport_to
from paddlejob.kube.errors import CredentialsError, TransportError
from paddlejob.kube.transport.auth import Credentials
from paddlejob.kube.transport.cluster import ExecPlugin, User

V1 = "client.authentication.k8s.io/v1"
CERTIFICATE = (DATA / "client.crt").read_bytes()
KEY = (DATA / "client.key").read_bytes()


def only(token):
    """A handler that accepts one token."""

    async def handler(request):
        accepted = request.headers.get("Authorization") == f"Bearer {token}"
        return web.Response(status=200 if accepted else 401, text="welcome" if accepted else "who are you?")

    return handler


async def test_a_client_certificate_is_shown():
    user = User(client_certificate=CERTIFICATE, client_key=KEY)
    async with serve(client_certificates=True) as server, transport_to(server, user=user) as transport:
        await transport.request("GET", "/")
        assert shown_name(server.requests[0]) == "client"


async def test_a_missing_client_certificate_is_refused():
    async with serve(client_certificates=True) as server, transport_to(server) as transport:
        with pytest.raises(
            TransportError, match=f"the connection to {server.url} failed|closed the connection"
        ):
            await transport.request("GET", "/")


async def test_a_rotated_client_certificate_is_shown_after_a_refusal(tmp_path):
    def rotate(name):
        (tmp_path / "crt").write_bytes((DATA / f"{name}.crt").read_bytes())
        (tmp_path / "key").write_bytes((DATA / f"{name}.key").read_bytes())

    async def handler(request):
        return web.Response(status=200 if shown_name(request) == wanted else 401)

    user = User(client_certificate=tmp_path / "crt", client_key=tmp_path / "key")
    async with (
        serve(handler, client_certificates=True) as server,
        transport_to(server, user=user) as transport,
    ):
        for wanted in ("client", "next-client"):
            rotate(wanted)
            assert (await transport.request("GET", "/")).status == 200
    assert len(server.requests) == 3


def rotating(token_file):
    """A handler that accepts the token to which it turns the file when it is first asked."""
    token_file.write_text("old")

    async def handler(request):
        token_file.write_text("new")
        return await only("new")(request)

    return handler


async def test_a_token_rotated_on_the_way_is_sent_again(tmp_path):
    user = User(token_file=tmp_path / "token")
    async with serve(rotating(user.token_file)) as server, transport_to(server, user=user) as transport:
        response = await transport.request("POST", "/", body=b"body")
    assert (response.status, response.body) == (200, b"welcome")
    assert [await request.read() for request in server.requests] == [b"body", b"body"]


async def test_a_token_rotated_while_a_stream_opens(tmp_path):
    user = User(token_file=tmp_path / "token")
    async with serve(rotating(user.token_file)) as server, transport_to(server, user=user) as transport:
        assert await lines_of(transport) == [b"welcome"]


async def test_a_refusal_of_all_credentials_is_the_answer():
    async with serve(only("other")) as server, transport_to(server, user=User(token="mine")) as transport:
        response = await transport.request("GET", "/")
    assert (response.status, response.body) == (401, b"who are you?")
    assert len(server.requests) == 1


async def test_new_credentials_are_tried_once(tmp_path):
    token_file = tmp_path / "token"
    token_file.write_text("0")

    async def handler(request):
        token_file.write_text(str(len(server.requests)))
        return web.Response(status=401)

    async with serve(handler) as server, transport_to(server, user=User(token_file=token_file)) as transport:
        assert (await transport.request("GET", "/")).status == 401
    assert len(server.requests) == 2


def plugin(*args, command="echo"):
    return User(exec_plugin=ExecPlugin(api_version=V1, command=command, args=args, interactive_mode="Never"))


async def test_an_exec_plugin_gives_the_token():
    output = json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": {"token": "t"}})
    async with serve(only("t")) as server, transport_to(server, user=plugin(output)) as transport:
        assert (await transport.request("GET", "/")).status == 200


async def test_an_exec_plugin_gives_the_certificate():
    status = {"clientCertificateData": CERTIFICATE.decode(), "clientKeyData": KEY.decode()}
    user = plugin(json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status}))
    async with serve(client_certificates=True) as server, transport_to(server, user=user) as transport:
        await transport.request("GET", "/")
        assert shown_name(server.requests[0]) == "client"


async def test_an_exec_plugin_that_fails_keeps_the_request_home(caplog):
    async with serve() as server, transport_to(server, user=plugin(command="false")) as transport:
        with pytest.raises(CredentialsError, match="'false' failed with exit code 1"):
            await transport.request("GET", "/")
        with pytest.raises(CredentialsError, match="'false' failed with exit code 1"):
            await lines_of(transport)
    assert server.requests == []


class LoggedOut:
    """Somebody whose credentials have expired and who must log in again."""

    async def credentials(self):
        return Credentials("Bearer old")

    async def renew(self, rejected):
        raise CredentialsError("log in again")


async def test_a_failed_renewal_has_a_reason():
    options = {"authenticator": LoggedOut()}
    async with serve(only("new")) as server, transport_to(server, options=options) as transport:
        with pytest.raises(CredentialsError, match="log in again"):
            await transport.request("GET", "/")
