"""Checks requests to the dashboard of one user: only the browser that opened the link may send them.

The link has a token that works once and is exchanged for a cookie. Scripts cannot read the cookie, and other
sites cannot send it. The checks of `Host` prevent DNS rebinding. The checks of `Origin` and `Sec-Fetch-Site`
reject requests of other pages in the same browser.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from paddlejob.dashboard.session import UserSession

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Refusal = tuple[int, str]

SESSION = web.RequestKey("session", UserSession)
"""Key of the user's session in a request."""
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
    """Accepts requests of one user and rejects all others."""

    def __init__(self, session: UserSession, port: int, more_hosts: Iterable[str] = ()) -> None:
        self._session = session
        self._hosts = {f"{host}:{port}" for host in ("127.0.0.1", "localhost")} | set(more_hosts)
        self._token = secrets.token_urlsafe(32)
        self._secret = secrets.token_urlsafe(32)
        # Browsers share cookies between ports. Two dashboards must not overwrite each other's cookie.
        self._cookie = f"paddlejob-{port}"

    @property
    def query(self) -> str:
        """The query of the link."""
        return f"?token={self._token}"

    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request or reject it."""
        refusal = self._refusal(request)
        if refusal is not None:
            return rejection(refusal)
        is_known = hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), self._secret.encode())
        if not is_known and not self._redeem(request):
            return rejection(PRIVATE)
        request[SESSION] = self._session
        response = await handler(request)
        if not is_known:
            # No redirect: browsers do not send a strict cookie on a redirect that began on another site.
            set_cookie(response, self._cookie, self._secret)
        return response

    def _redeem(self, request: web.Request) -> bool:
        """Return whether the request has the token, and invalidate the token."""
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
    """Set a cookie that no script can read and no other site can send.

    Without a path, the browser sends it only to the directory of this URL, below any prefix of a proxy.
    """
    response.set_cookie(name, secret, httponly=True, samesite="Strict", secure=secure)
    response.cookies[name]["path"] = ""


def is_from_own_page(request: web.Request, page: str) -> bool:
    """Return whether a request may come from the dashboard's pages. Any site may link to the page itself."""
    if request.method in SAFE_METHODS and request.path == page:
        return True
    return request.headers.get("Sec-Fetch-Site", "") in _OWN_SITES


def rejection(refusal: Refusal) -> web.Response:
    """Return the response to a rejected request."""
    status, sentence = refusal
    return web.Response(status=status, text=f"{sentence}\n")


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Add the headers of every response."""
    response.headers.update(HEADERS)
    response.headers.setdefault("Cache-Control", "no-cache")
