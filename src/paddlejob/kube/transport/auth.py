"""Credentials in use: read again now and then, renewed before they expire or when the server refuses them."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from paddlejob.kube.errors import CredentialsError
from paddlejob.kube.transport.cluster import User
from paddlejob.kube.transport.exec_plugin import PluginCredentials, run_plugin
from paddlejob.kube.transport.tls import ClientCertificate

log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Monotonic seconds."""

FILE_AGE_SECONDS = 60.0
PLUGIN_PAUSE_SECONDS = 5.0
"""The least time between two runs of a plugin, so that no 401 and no broken plugin makes a storm of them."""
EXPIRY_MARGIN_SECONDS = 60.0


class Identity(msgspec.Struct, frozen=True):
    """What one request shows to the server."""

    authorization: str = ""
    """The header's value, empty for none."""
    client_certificate: ClientCertificate | None = None

    def __repr__(self) -> str:
        """Show which ways are used, and no secret."""
        return (
            f"Identity(authorization={self.authorization.partition(' ')[0]!r}, {self.client_certificate!r})"
        )


class Authenticator(Protocol):
    """Where a transport gets its identity from."""

    async def identity(self) -> Identity:
        """Return the identity to use now.

        Raises CredentialsError when none can be had.
        """
        ...

    async def renew(self, rejected: Identity) -> bool:
        """Look for a better identity after a 401; tell whether there is one.

        Raises CredentialsError when looking fails.
        """
        ...


def authenticator_for(user: User) -> Authenticator:
    """Return the authenticator for a user."""
    files = FileAuthenticator(user)
    if user.exec_plugin is None:
        return files
    plugin = user.exec_plugin
    return PluginAuthenticator(lambda: run_plugin(plugin), files)


class FileAuthenticator:
    """What stands in the kubeconfig or in files, which are read again after a minute and after a 401."""

    def __init__(self, user: User, *, clock: Clock | None = None) -> None:
        self._user = user
        self._clock = clock or _loop_time
        self._files = [
            source
            for source in (user.token_file, user.client_certificate, user.client_key)
            if isinstance(source, Path)
        ]
        self._current: Identity | None = None
        self._read_at = 0.0

    async def identity(self) -> Identity:
        """Return the identity as of the last minute."""
        if self._current is None or (self._files and self._clock() - self._read_at >= FILE_AGE_SECONDS):
            return self._read()
        return self._current

    async def renew(self, rejected: Identity) -> bool:
        """Read the files again."""
        return bool(self._files) and self._read() != rejected

    def _read(self) -> Identity:
        """Read everything; what was read before stays in use while a file is being replaced."""
        self._read_at = self._clock()
        try:
            self._current = _identity_of(self._user)
        except CredentialsError as error:
            if self._current is None:
                raise
            log.warning("%s; going on with what was read before", error)
        return self._current


class PluginAuthenticator:
    """What an exec plugin gives, over what stands in the kubeconfig beside it.

    Guarantees one run at a time, however many requests wait for it.
    """

    def __init__(
        self,
        run: Callable[[], Awaitable[PluginCredentials]],
        beside: Authenticator,
        *,
        clock: Clock | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._run = run
        self._beside = beside
        self._clock = clock or _loop_time
        self._now = now or _utc_now
        self._lock = asyncio.Lock()
        self._current: PluginCredentials | None = None
        self._renew_at: datetime | None = None
        self._ran_at: float | None = None
        self._failure: CredentialsError | None = None

    async def identity(self) -> Identity:
        """Return the identity, from a new run when the last one's is about to expire."""
        if self._current is None or self._is_due():
            await self._run_unless(lambda: self._current is not None and not self._is_due())
        return await self._identity()

    async def renew(self, rejected: Identity) -> bool:
        """Run the plugin, unless the rejected identity is an old one already."""
        if self._current is not None and await self._identity() == rejected:
            await self._run_unless(lambda: False)
        return await self._identity() != rejected

    async def _identity(self) -> Identity:
        assert self._current is not None
        beside = await self._beside.identity()
        return Identity(
            _bearer(self._current.token) if self._current.token else beside.authorization,
            self._current.client_certificate or beside.client_certificate,
        )

    def _is_due(self) -> bool:
        return self._renew_at is not None and self._now() >= self._renew_at

    async def _run_unless(self, done: Callable[[], bool]) -> None:
        async with self._lock:
            if done():
                return
            if self._ran_at is None or self._clock() - self._ran_at >= PLUGIN_PAUSE_SECONDS:
                await self._run_once()
            if self._failure is not None and not self._is_still_valid():
                # A new one each time: an exception that is raised again collects tracebacks.
                raise CredentialsError(*self._failure.args)

    async def _run_once(self) -> None:
        try:
            self._current = await self._run()
        except CredentialsError as error:
            self._failure = error
            log.warning("%s", error)
        else:
            self._failure = None
            self._renew_at = self._time_to_renew(self._current.expires_at)
        self._ran_at = self._clock()

    def _time_to_renew(self, expires_at: datetime | None) -> datetime | None:
        """Return a moment before the end, relatively so for credentials that live for minutes only."""
        if expires_at is None:
            return None
        lifetime_seconds = max((expires_at - self._now()).total_seconds(), 0.0)
        return expires_at - timedelta(seconds=min(EXPIRY_MARGIN_SECONDS, lifetime_seconds / 5))

    def _is_still_valid(self) -> bool:
        if self._current is None:
            return False
        return self._current.expires_at is None or self._now() < self._current.expires_at


def _identity_of(user: User) -> Identity:
    certificate = None
    if user.client_certificate is not None and user.client_key is not None:
        certificate = ClientCertificate(_content(user.client_certificate), _content(user.client_key))
    return Identity(_authorization(user), certificate)


def _authorization(user: User) -> str:
    if user.token_file is not None:
        token = _content(user.token_file).decode("utf-8", "replace").strip()
        if not token:
            raise CredentialsError(f"the token file {user.token_file} is empty")
        return _bearer(token)
    if user.token:
        return _bearer(user.token)
    if user.username:
        return basic(user.username, user.password)
    return ""


def basic(username: str, password: str) -> str:
    """Return the value of an Authorization header for a password."""
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


def _bearer(token: str) -> str:
    token = token.strip()
    if not token.isascii() or not token.isprintable():
        raise CredentialsError("the token is broken: it holds characters that no HTTP header may")
    return f"Bearer {token}"


def _content(source: bytes | Path) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise CredentialsError(f"{source} cannot be read: {error.strerror}") from error


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _utc_now() -> datetime:
    return datetime.now(UTC)
