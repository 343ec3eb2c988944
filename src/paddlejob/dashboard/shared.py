"""The dashboard inside a cluster, for many users: whatever it does, it does with the token of who asks.

A token comes with each request, where a proxy in front signs people in, or from a form, for a cookie that
stands for it. The dashboard has no rights of its own, so there is nothing to be had from it without a token.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from aiohttp import web

from paddlejob.client.errors import ClientError, sentence
from paddlejob.dashboard.guard import (
    DESK,
    FOREIGN,
    SAFE_METHODS,
    Handler,
    Refusal,
    is_from_own_page,
    refused,
    set_cookie,
)
from paddlejob.dashboard.pages import application, read_json, to_json
from paddlejob.dashboard.users import BusyError, Users, plain_token
from paddlejob.kube.errors import UnauthorizedError
from paddlejob.kube.transport.cluster import ClusterConfig

COOKIE = "paddlejob"
LONGEST_HEADER = 1 << 16
"""Tokens of people who are in many groups are long."""
STOP_SECONDS = 2.0
CERTIFICATE_SECONDS = 60.0
"""How often the certificate is read again, which others renew."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEALTH = "/healthz"
_SIGN_IN = "/api/sign-in"


class Certificate(NamedTuple):
    """The files that HTTPS is served with."""

    chain: Path
    key: Path


class SharedDashboard:
    """Serves everybody who has a token for the cluster."""

    def __init__(self, config: ClusterConfig, *, hosts: Iterable[str] = (), prefix: str = "") -> None:
        """Take the names and the path that browsers know the dashboard by, besides those of this machine."""
        self.users = Users(config)
        self._guard = TokenGuard(self.users, hosts, prefix)
        self._prefix = prefix
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self.users.run()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        # Ends what is being sent, which the server would wait for.
        await self.users.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def serve(self, address: str, certificate: Certificate | None = None) -> int:
        """Listen on `host:port`, an empty host being all addresses; return the port. Raises ClientError."""
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise ClientError(f"cannot listen on {address}: write it as HOST:PORT or :PORT")
        context = self._https(certificate) if certificate else None
        self._runner = web.AppRunner(
            self._application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=STOP_SECONDS,
            max_field_size=LONGEST_HEADER,
            max_line_size=LONGEST_HEADER,
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
        # Addresses in the page are relative to its directory; a proxy may have removed what is before it.
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
    """Read the certificate again and again, until cancelled."""
    while True:
        await asyncio.sleep(CERTIFICATE_SECONDS)
        try:
            context.load_cert_chain(*certificate)
        except OSError:
            # It is being replaced, or wrong; the last one that was right stays in use.
            continue


async def _health(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


class TokenGuard:
    """Lets requests through with the desk of whoever sent them, or refuses them with a sentence."""

    def __init__(self, users: Users, hosts: Iterable[str], prefix: str) -> None:
        self._users = users
        self._hosts = frozenset(hosts)
        self._prefix = prefix

    def routes(self) -> list[web.AbstractRouteDef]:
        """Return how people sign in and out."""
        return [web.post(_SIGN_IN, self._sign_in), web.post("/api/sign-out", self._sign_out)]

    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, or refuse it."""
        path = request.path.removeprefix(self._prefix)
        if path == _HEALTH:
            return await handler(request)
        if (refusal := self._refusal(request)) is not None:
            return refused(refusal)
        # The files of the pages are the same for everybody, and the form is among them.
        if not path.startswith("/api/") or path == _SIGN_IN:
            return await handler(request)
        rejection = await self._desk(request)
        return await handler(request) if rejection is None else rejection

    async def _desk(self, request: web.Request) -> web.Response | None:
        """Attach the desk of the token to the request, or return the refusal."""
        token = self._token(request)
        if not token:
            return to_json({"error": "Sign in first.", "signIn": True}, 401)
        try:
            request[DESK] = await self._users.desk(token)
        except UnauthorizedError as error:
            return to_json({"error": sentence(error), "signIn": True}, 401)
        except BusyError:
            return _busy()
        return None

    def _token(self, request: web.Request) -> str:
        """Return what a proxy in front says, or else what was signed in with."""
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
        # A browser that says so has compared the names that it knows, which a proxy may have changed.
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
        # Whatever the browser had before, or was given by somebody else, stands for nobody any longer.
        await self._users.sign_out(request.cookies.get(name, ""))
        set_cookie(response, name, secret, secure=origin.scheme == "https")
        return response

    async def _sign_out(self, request: web.Request) -> web.Response:
        await self._users.sign_out(request.cookies.get(_cookie(request), ""))
        return to_json({})


def _busy() -> web.Response:
    answer = to_json({"error": "Too many people sign in at the moment; try again in a few seconds."}, 503)
    answer.headers["Retry-After"] = "5"
    return answer


def _cookie(request: web.Request) -> str:
    """Return the cookie's name: cookies know no ports, and two clusters may be forwarded to one machine."""
    port = request.headers.get("Host", "").rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isdecimal() else COOKIE


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
