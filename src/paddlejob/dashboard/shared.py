"""The dashboard inside a cluster, for many users. Every call to the API server uses the token of the user.

The token comes with each request from a proxy that signs users in, or from the sign-in form, which sets a
cookie. The dashboard itself has no permissions.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from aiohttp import web

from paddlejob.client.errors import ClientError, sentence
from paddlejob.dashboard.guard import (
    FOREIGN,
    SAFE_METHODS,
    SESSION,
    Handler,
    Refusal,
    is_from_own_page,
    rejection,
    set_cookie,
)
from paddlejob.dashboard.pages import application, read_json, to_json
from paddlejob.dashboard.users import BusyError, Users, plain_token
from paddlejob.kube.errors import UnauthorizedError
from paddlejob.kube.transport.cluster import ClusterConfig

COOKIE = "paddlejob"
MAX_HEADER_LENGTH = 1 << 16
"""Tokens of users in many groups are long."""
STOP_SECONDS = 2.0
CERTIFICATE_SECONDS = 60.0
"""How often a renewed certificate is read."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEALTH = "/healthz"
_SIGN_IN = "/api/sign-in"


class Certificate(NamedTuple):
    """Certificate files for HTTPS."""

    chain: Path
    key: Path


class SharedDashboard:
    """Serves all users with a token of the cluster."""

    def __init__(self, config: ClusterConfig, *, hosts: Iterable[str] = (), prefix: str = "") -> None:
        """`hosts` and `prefix` are the public host names and the public path of the dashboard."""
        self.users = Users(config)
        self._guard = TokenGuard(self.users, hosts, prefix)
        self._prefix = prefix
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self.users.run()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        # End the streams first, since the server waits for them.
        await self.users.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def serve(self, address: str, certificate: Certificate | None = None) -> int:
        """Listen on `host:port` and return the port. An empty host is all addresses. Raises ClientError."""
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise ClientError(f"cannot listen on {address}: write it as HOST:PORT or :PORT")
        context = self._https(certificate) if certificate else None
        self._runner = web.AppRunner(
            self._application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=STOP_SECONDS,
            max_field_size=MAX_HEADER_LENGTH,
            max_line_size=MAX_HEADER_LENGTH,
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host.strip("[]") or None, int(port), ssl_context=context).start()
        except OSError as error:
            raise ClientError(f"cannot listen on {address}: {error.strerror}") from error
        actual: int = self._runner.addresses[0][1]
        return actual

    def _application(self) -> web.Application:
        app = application(self._guard.check, web.get(_HEALTH, _health), *self._guard.routes())
        if not self._prefix:
            return app
        outer = web.Application()
        outer.router.add_get(_HEALTH, _health)
        outer.router.add_get(self._prefix, self._to_prefix)
        outer.add_subapp(self._prefix, app)
        return outer

    async def _to_prefix(self, _: web.Request) -> web.StreamResponse:
        # URLs in the page are relative to its directory, since a proxy may have removed a prefix.
        raise web.HTTPFound(f"{self._prefix.rpartition('/')[2]}/")

    def _https(self, certificate: Certificate) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(*certificate)
        except OSError as error:
            raise ClientError(f"cannot use the certificate {certificate.chain}: {error}") from error
        self._tasks.append(asyncio.create_task(_renew(context, certificate)))
        return context


async def _renew(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Reload the certificate periodically until cancelled."""
    while True:
        await asyncio.sleep(CERTIFICATE_SECONDS)
        try:
            context.load_cert_chain(*certificate)
        except OSError:
            # The files are being replaced or invalid. Keep the last valid certificate.
            continue


async def _health(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


class TokenGuard:
    """Attaches the session of the user to each request, or rejects the request."""

    def __init__(self, users: Users, hosts: Iterable[str], prefix: str) -> None:
        self._users = users
        self._hosts = frozenset(hosts)
        self._prefix = prefix

    def routes(self) -> list[web.AbstractRouteDef]:
        """Return the routes for sign-in and sign-out."""
        return [web.post(_SIGN_IN, self._sign_in), web.post("/api/sign-out", self._sign_out)]

    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request or reject it."""
        path = request.path.removeprefix(self._prefix)
        if path == _HEALTH:
            return await handler(request)
        if (refusal := self._refusal(request)) is not None:
            return rejection(refusal)
        # Static files are the same for all users and include the sign-in form.
        if not path.startswith("/api/") or path == _SIGN_IN:
            return await handler(request)
        failure = await self._attach_session(request)
        return await handler(request) if failure is None else failure

    async def _attach_session(self, request: web.Request) -> web.Response | None:
        """Attach the session of the token to the request, or return an error response."""
        token = self._token(request)
        if not token:
            return to_json({"error": "Sign in first.", "signIn": True}, 401)
        try:
            request[SESSION] = await self._users.session(token)
        except UnauthorizedError as error:
            return to_json({"error": sentence(error), "signIn": True}, 401)
        except BusyError:
            return _busy()
        return None

    def _token(self, request: web.Request) -> str:
        """Return the token from a proxy, or else from the sign-in."""
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer" and token.strip():
            return plain_token(token)
        return self._users.token_of(request.cookies.get(_cookie(request), ""))

    def _refusal(self, request: web.Request) -> Refusal | None:
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if host not in self._hosts and _name(host) not in _LOOPBACK:
            return 421, f"The dashboard is not served as {host!r}; allow it with the chart's dashboard.hosts."
        if not is_from_own_page(request, f"{self._prefix}/"):
            return FOREIGN
        if request.method in SAFE_METHODS:
            return None
        if origin is None:
            return 403, "A change needs an Origin header."
        try:
            netloc = urlsplit(origin).netloc
        except ValueError:
            return FOREIGN
        # Trust Sec-Fetch-Site: the browser compared the public host names, which a proxy may rewrite.
        is_own = request.headers.get("Sec-Fetch-Site") == "same-origin"
        return None if is_own or netloc in {host, *self._hosts} else FOREIGN

    async def _sign_in(self, request: web.Request) -> web.Response:
        origin = urlsplit(request.headers["Origin"])
        if origin.scheme != "https" and origin.hostname not in _LOOPBACK:
            raise ClientError(
                "This page was opened over plain HTTP, where others can read your token; open it over HTTPS, "
                "or with kubectl port-forward"
            )
        text = str((await read_json(request)).get("token", ""))
        try:
            secret = await self._users.sign_in(text)
        except UnauthorizedError:
            raise ClientError("The API server does not accept this token; it is wrong or expired") from None
        except BusyError:
            return _busy()
        response, name = to_json({}), _cookie(request)
        # Invalidate the previous cookie, which may come from someone else.
        await self._users.sign_out(request.cookies.get(name, ""))
        set_cookie(response, name, secret, secure=origin.scheme == "https")
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        await self._users.sign_out(request.cookies.get(_cookie(request), ""))
        return to_json({})


def _busy() -> web.Response:
    answer = to_json({"error": "Too many users are signing in; try again in a few seconds."}, 503)
    answer.headers["Retry-After"] = "5"
    return answer


def _cookie(request: web.Request) -> str:
    """Return the cookie's name with the port: two clusters may be forwarded to one machine."""
    port = request.headers.get("Host", "").rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isdecimal() else COOKIE


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
