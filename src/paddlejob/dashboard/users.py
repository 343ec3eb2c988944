"""The users of a shared dashboard: each is who the API server takes their bearer token for, and nobody else.

Tokens are kept in memory only. A desk belongs to one token and has connections of its own, so that what one
user sees never reaches another. The API server is asked every minute whether it still accepts the token.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import msgspec

from paddlejob.client import live
from paddlejob.client.cluster import FIELD_MANAGER, Cluster
from paddlejob.client.errors import ClientError
from paddlejob.dashboard.desk import ALL, Desk
from paddlejob.kube.client import Client
from paddlejob.kube.errors import KubeError, UnauthorizedError
from paddlejob.kube.transport.cluster import ClusterConfig, User
from paddlejob.kube.transport.http import HttpTransport

log = logging.getLogger(__name__)

REVIEW_SECONDS = 60.0
IDLE_SECONDS = 300.0
"""How long the connections of a user are kept who has no page open."""
SESSION_SECONDS = 12 * 3600.0
"""How long a user stays signed in who does nothing; a token that expires earlier ends it earlier."""
MOST_SESSIONS, MOST_OF_USER = 10_000, 200
"""How many browsers are signed in, and how many of them as the same user: nobody can push out all others."""
MOST_ADMITTING = 16
_SERVICE_ACCOUNT = "system:serviceaccount:"

Clock = Callable[[], float]


class _Known:
    """A token that was brought, and the desk that it opens where it is accepted."""

    def __init__(self, token: str, cluster: Cluster, desk: Coroutine[Any, Any, Desk]) -> None:
        self.token = token
        self.cluster = cluster
        self.desk = asyncio.create_task(desk)
        self.used_at = 0.0


class _Session(NamedTuple):
    token: str
    user: str
    used_at: float


class Users:
    """Finds the desk of a token, and the token of whoever signed in."""

    def __init__(self, config: ClusterConfig, *, clock: Clock | None = None) -> None:
        """Take the cluster from `config`, and no credentials."""
        self._config = msgspec.structs.replace(config, user=User())
        self._clock = clock or asyncio.get_running_loop().time
        self._known: dict[bytes, _Known] = {}
        self._sessions: dict[bytes, _Session] = {}
        self._admitting = asyncio.Semaphore(MOST_ADMITTING)

    async def sign_in(self, text: str) -> str:
        """Return the secret of a browser, for a token that the API server accepts.

        Raises ClientError, and KubeError as the API server refuses it.
        """
        token = plain_token(text)
        user = (await self.desk(token)).user
        secret = secrets.token_urlsafe(32)
        self._sessions[_hash(secret)] = _Session(token, user, self._clock())
        same = [key for key, each in self._sessions.items() if each.user == user]
        for key in (*same[:-MOST_OF_USER], *list(self._sessions)[:-MOST_SESSIONS]):
            self._sessions.pop(key, None)
        return secret

    async def sign_out(self, secret: str) -> None:
        """Forget a browser, and its token where no other browser signed in with it."""
        gone = self._sessions.pop(_hash(secret), None)
        if gone is None or any(each.token == gone.token for each in self._sessions.values()):
            return
        if (known := self._known.get(_hash(gone.token))) is not None:
            await self._end(known)

    def token_of(self, secret: str) -> str:
        """Return the token of a browser, empty where it has not signed in."""
        key = _hash(secret)
        found = self._sessions.pop(key, None)
        if found is None or self._clock() > found.used_at + SESSION_SECONDS:
            return ""
        # The one that was used last is at the end, and forgotten last.
        self._sessions[key] = found._replace(used_at=self._clock())
        return found.token

    async def desk(self, token: str) -> Desk:
        """Return the desk of a token. Raises KubeError, UnauthorizedError where the token is not accepted."""
        key = _hash(token)
        known = self._known.get(key)
        if known is None:
            cluster = self._open(token)
            known = self._known[key] = _Known(token, cluster, self._admit(cluster))
        known.used_at = self._clock()
        try:
            # Several requests may wait for it; one that goes away must not take it from the others.
            return await asyncio.shield(known.desk)
        except KubeError:
            await self._end(known)
            raise

    async def _admit(self, cluster: Cluster) -> Desk:
        # Whoever tries tokens must not keep the others from the API server.
        async with self._admitting:
            return await _make_desk(cluster)

    def _open(self, token: str) -> Cluster:
        config = msgspec.structs.replace(self._config, user=User(token=token))
        return Cluster(Client(HttpTransport(config, user_agent=FIELD_MANAGER)))

    async def run(self) -> None:
        """Ask again and again who is still accepted, until cancelled."""
        while True:
            await asyncio.sleep(REVIEW_SECONDS)
            try:
                await self.review()
            except Exception:
                # Whatever it is, tokens go on being reviewed.
                log.exception("bug in the dashboard; tokens are reviewed again in %.0f s", REVIEW_SECONDS)

    async def review(self) -> None:
        """End the desks of tokens that are not accepted any longer, and those that nobody uses."""
        await asyncio.gather(*(self._review(each) for each in self._known.values() if each.desk.done()))
        oldest = self._clock() - SESSION_SECONDS
        self._sessions = {key: each for key, each in self._sessions.items() if each.used_at > oldest}

    async def _review(self, known: _Known) -> None:
        is_idle = self._clock() > known.used_at + IDLE_SECONDS
        if known.desk.exception() is not None or (is_idle and not known.desk.result().is_in_use):
            await self._end(known)
            return
        try:
            await live.user_name(known.cluster.client)
        except UnauthorizedError:
            self._sessions = {key: each for key, each in self._sessions.items() if each.token != known.token}
            await self._end(known)
        except KubeError as error:
            # A server that does not answer says nothing about the token; the pages say that it does not.
            log.info("cannot review a token: %s", error)

    async def _end(self, known: _Known) -> None:
        if self._known.get(_hash(known.token)) is known:
            del self._known[_hash(known.token)]
        known.desk.cancel()
        await asyncio.wait({known.desk})
        if not known.desk.cancelled() and known.desk.exception() is None:
            await known.desk.result().close()
        await known.cluster.close()

    async def close(self) -> None:
        """End all desks and forget all tokens."""
        self._sessions.clear()
        await asyncio.gather(*(self._end(each) for each in list(self._known.values())))


async def _make_desk(cluster: Cluster) -> Desk:
    """Return the desk of whoever the API server takes the user of these connections for."""
    user = await live.user_name(cluster.client)
    if user.startswith(_SERVICE_ACCOUNT):
        cluster.namespace = user.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
    scope = ALL if await live.may_list_all(cluster.client) else cluster.namespace
    return Desk(cluster, scope=scope, user=user or "signed in")


def plain_token(text: str) -> str:
    """Return the token in what a person pasted or a proxy sent. Raises ClientError."""
    token = text.strip().removeprefix("Bearer ").strip()
    if not token:
        raise ClientError("the token is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ClientError("this is not a token: it contains spaces or characters that a token cannot have")
    return token


def _hash(secret: str) -> bytes:
    """Return what a secret is found by: a comparison of hashes tells nothing about it by its time."""
    return hashlib.sha256(secret.encode()).digest()
