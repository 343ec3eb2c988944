"""The users of a shared dashboard, identified by the bearer token that the API server accepts.

Tokens are kept in memory only. A session belongs to one token and has separate connections, so no user sees
the objects of another. The API server reviews each token every minute. An unknown token costs a bounded
review and leaves only its hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from paddlejob.client import live
from paddlejob.client.cluster import FIELD_MANAGER, Cluster
from paddlejob.client.errors import ClientError
from paddlejob.dashboard.session import ALL, UserSession
from paddlejob.kube.client import Client
from paddlejob.kube.errors import KubeError, Status, UnauthorizedError
from paddlejob.kube.transport.cluster import ClusterConfig, User
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.kube.transport.tls import tls_context

log = logging.getLogger(__name__)

REVIEW_SECONDS = 60.0
IDLE_SECONDS = 300.0
"""How long the connections of a user without an open page are kept."""
SESSION_SECONDS = 12 * 3600.0
"""How long an idle user stays signed in; a token that expires earlier ends it earlier."""
MAX_SESSIONS, MAX_PER_USER = 10_000, 200
"""Maximum number of signed-in browsers, in all and per user: one user cannot push out all others."""
MAX_ADMITTING = 16
"""Unknown tokens under review at the same time; each needs a connection to the API server."""
MAX_WAITING = 64
"""Unknown tokens under review or waiting for it. Further ones are refused until one is done."""
MAX_REFUSED = 10_000
REFUSED_SECONDS = 60.0
"""How long a refused token is refused again without asking the API server."""
_SERVICE_ACCOUNT = "system:serviceaccount:"

Clock = Callable[[], float]


class BusyError(Exception):
    """Too many unknown tokens wait for a review."""


class _Known:
    """An accepted token and its session."""

    def __init__(self, token: str, cluster: Cluster, session: UserSession, owner: str) -> None:
        self.token = token
        self.cluster = cluster
        self.session = session
        self.owner = owner
        """The user name, or the token before Kubernetes 1.28, which does not return the name."""
        self.used_at = 0.0


class _Browser(NamedTuple):
    token: str
    owner: str
    used_at: float


class _Refusal(NamedTuple):
    status: Status
    until: float


class Users:
    """Finds the session of a token, and the token of a signed-in browser."""

    def __init__(self, config: ClusterConfig, *, clock: Clock | None = None) -> None:
        """Use the server of `config` without its credentials."""
        self._config = msgspec.structs.replace(config, user=User())
        # Shared by all tokens: loading the authorities takes 30 ms and half a megabyte.
        self._tls = tls_context(self._config)
        self._clock = clock or asyncio.get_running_loop().time
        self._known: dict[bytes, _Known] = {}
        self._admissions: dict[bytes, asyncio.Task[_Known]] = {}
        self._refused: dict[bytes, _Refusal] = {}
        self._browsers: dict[bytes, _Browser] = {}
        self._admitting = asyncio.Semaphore(MAX_ADMITTING)

    async def sign_in(self, text: str) -> str:
        """Return a new browser secret for a token that the API server accepts.

        Raises ClientError, BusyError, and the KubeError of the API server.
        """
        known = await self._find(plain_token(text))
        secret = secrets.token_urlsafe(32)
        self._browsers[_hash(secret)] = _Browser(known.token, known.owner, self._clock())
        same = [key for key, each in self._browsers.items() if each.owner == known.owner]
        for key in (*same[:-MAX_PER_USER], *list(self._browsers)[:-MAX_SESSIONS]):
            self._browsers.pop(key, None)
        return secret

    async def sign_out(self, secret: str) -> None:
        """Forget a browser, and its token unless another browser signed in with it."""
        gone = self._browsers.pop(_hash(secret), None)
        if gone is None or any(each.token == gone.token for each in self._browsers.values()):
            return
        if (known := self._known.get(_hash(gone.token))) is not None:
            await self._end(known)

    def token_of(self, secret: str) -> str:
        """Return the token of a browser, empty if it has not signed in."""
        key = _hash(secret)
        found = self._browsers.pop(key, None)
        if found is None or self._clock() > found.used_at + SESSION_SECONDS:
            return ""
        # The last used browser is at the end and is removed last.
        self._browsers[key] = found._replace(used_at=self._clock())
        return found.token

    async def session(self, token: str) -> UserSession:
        """Return the session of a token. Raises BusyError, KubeError, and UnauthorizedError."""
        return (await self._find(token)).session

    async def _find(self, token: str) -> _Known:
        key = _hash(token)
        known = self._known.get(key) or await self._admit(key, token)
        known.used_at = self._clock()
        return known

    async def _admit(self, key: bytes, token: str) -> _Known:
        refusal = self._refused.get(key)
        if refusal is not None and self._clock() < refusal.until:
            raise UnauthorizedError(refusal.status)
        admission = self._admissions.get(key)
        if admission is None:
            if len(self._admissions) >= MAX_WAITING:
                raise BusyError
            admission = self._admissions[key] = asyncio.create_task(self._open(key, token))
            admission.add_done_callback(lambda _: self._admissions.pop(key, None))
        # Other requests may wait for the same admission.
        return await asyncio.shield(admission)

    async def _open(self, key: bytes, token: str) -> _Known:
        """Review an unknown token. Only an accepted token stays in memory."""
        config = msgspec.structs.replace(self._config, user=User(token=token))
        async with self._admitting:
            cluster = Cluster(Client(HttpTransport(config, user_agent=FIELD_MANAGER, tls=self._tls)))
            try:
                session, user = await _open_session(cluster)
            except BaseException as error:
                await cluster.close()
                if isinstance(error, UnauthorizedError):
                    self._refuse(key, error.status)
                raise
        self._known[key] = _Known(token, cluster, session, user or token)
        return self._known[key]

    def _refuse(self, key: bytes, status: Status) -> None:
        self._refused.pop(key, None)
        self._refused[key] = _Refusal(status, self._clock() + REFUSED_SECONDS)
        if len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    async def run(self) -> None:
        """Review all tokens periodically until cancelled."""
        while True:
            await asyncio.sleep(REVIEW_SECONDS)
            try:
                await self.review()
            except Exception:
                log.exception("bug in the dashboard; the next token review is in %.0f s", REVIEW_SECONDS)

    async def review(self) -> None:
        """End the sessions of rejected tokens and unused sessions."""
        await asyncio.gather(*(self._review(each) for each in list(self._known.values())))
        now = self._clock()
        self._browsers = {
            key: each for key, each in self._browsers.items() if each.used_at > now - SESSION_SECONDS
        }
        self._refused = {key: each for key, each in self._refused.items() if each.until > now}

    async def _review(self, known: _Known) -> None:
        is_idle = self._clock() > known.used_at + IDLE_SECONDS
        if is_idle and not known.session.is_in_use:
            await self._end(known)
            return
        try:
            await live.user_name(known.cluster.client)
        except UnauthorizedError:
            self._browsers = {key: each for key, each in self._browsers.items() if each.token != known.token}
            await self._end(known)
        except KubeError as error:
            # An unreachable API server does not invalidate the session; the pages show the outage.
            log.info("cannot review a token: %s", error)

    async def _end(self, known: _Known) -> None:
        if self._known.get(_hash(known.token)) is known:
            del self._known[_hash(known.token)]
        await known.session.close()
        await known.cluster.close()

    async def close(self) -> None:
        """End all sessions and forget all tokens."""
        self._browsers.clear()
        admissions = set(self._admissions.values())
        for task in admissions:
            task.cancel()
        if admissions:
            await asyncio.wait(admissions)
        await asyncio.gather(*(self._end(each) for each in list(self._known.values())))


async def _open_session(cluster: Cluster) -> tuple[UserSession, str]:
    """Return the session of a connection and its user name, empty if unknown."""
    user = await live.user_name(cluster.client)
    if user.startswith(_SERVICE_ACCOUNT):
        cluster.namespace = user.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
    scope = ALL if await live.may_list_all(cluster.client) else cluster.namespace
    return UserSession(cluster, scope=scope, user=user or "signed in"), user


def plain_token(text: str) -> str:
    """Return the token in a text from the form or a proxy. Raises ClientError."""
    token = text.strip().removeprefix("Bearer ").strip()
    if not token:
        raise ClientError("the token is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ClientError("this is not a token: it contains spaces or characters that a token cannot have")
    return token


def _hash(secret: str) -> bytes:
    """Return the lookup key of a secret. Comparing hashes leaks nothing about the secret by timing."""
    return hashlib.sha256(secret.encode()).digest()
