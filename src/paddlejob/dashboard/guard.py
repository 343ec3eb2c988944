"""Who may talk to the dashboard of one user: the browser that opened its link, from its own pages.

The link carries a token that works once; what it gives is a cookie that no script can read and no other site
can send. `Host` is checked because a foreign name may be made to point to this machine (DNS rebinding),
`Origin` and `Sec-Fetch-Site` because other pages in the same browser can send requests here.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from paddlejob.dashboard.desk import Desk

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Refusal = tuple[int, str]

DESK = web.RequestKey("desk", Desk)
"""Where a request carries whose it is."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "paddlejob",
    "X-Content-Type-Options": "nosniff",
}
SAFE_METHODS = ("GET", "HEAD")
_OWN_SITES = ("same-origin", "none", "")
PRIVATE = (
    401,
    (
        "This page is private. Open the link that `ui` printed; it works once, in one browser. "
        "To get another one, run the command again."
    ),
)
FOREIGN = (403, "Requests from other sites are refused.")


class LinkGuard:
    """Lets requests of one user through, or refuses them with a sentence."""

    def __init__(self, desk: Desk, port: int, more_hosts: Iterable[str] = ()) -> None:
        self._desk = desk
        self._hosts = {f"{host}:{port}" for host in ("127.0.0.1", "localhost")} | set(more_hosts)
        self._token = secrets.token_urlsafe(32)
        self._secret = secrets.token_urlsafe(32)
        # Cookies know no ports: two dashboards on one machine must not overwrite each other's.
        self._cookie = f"paddlejob-{port}"

    @property
    def query(self) -> str:
        """What makes a URL of the dashboard its link."""
        return f"?token={self._token}"

    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, or refuse it."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refused(refusal)
        is_known = hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), self._secret.encode())
        if not is_known and not self._redeem(request):
            return refused(PRIVATE)
        request[DESK] = self._desk
        response = await handler(request)
        if not is_known:
            # A redirect would lose the cookie: a strict one is not sent on the way from another site.
            set_cookie(response, self._cookie, self._secret)
        return response

    def _redeem(self, request: web.Request) -> bool:
        """Tell whether the request brings the token, which is worth nothing from then on."""
        given = request.query.get("token", "")
        if request.method != "GET" or request.path != "/" or not self._token:
            return False
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return False
        self._token = ""
        return True

    def _refusal(self, request: web.Request) -> Refusal | None:
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if host not in self._hosts:
            return 421, f"The dashboard is not served as {host!r}; allow that name with --allow-host."
        if origin is not None and origin.partition("://")[2] not in self._hosts:
            return FOREIGN
        if request.method not in SAFE_METHODS and origin is None:
            return 403, "A change needs an Origin header."
        return None if is_from_own_page(request, "/") else FOREIGN


def set_cookie(response: web.StreamResponse, name: str, secret: str, *, secure: bool = False) -> None:
    """Give a browser a secret that no script can read and no other site can send.

    Without a path it goes to the addresses beside this one only, whatever prefix a proxy adds.
    """
    response.set_cookie(name, secret, httponly=True, samesite="Strict", secure=secure)
    response.cookies[name]["path"] = ""


def is_from_own_page(request: web.Request, page: str) -> bool:
    """Tell whether the browser says so, or says nothing; links to the page itself may be anywhere."""
    if request.method in SAFE_METHODS and request.path == page:
        return True
    return request.headers.get("Sec-Fetch-Site", "") in _OWN_SITES


def refused(refusal: Refusal) -> web.Response:
    """Return the answer to a request that was refused."""
    status, sentence = refusal
    return web.Response(status=status, text=f"{sentence}\n")


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that every answer has."""
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-cache")
