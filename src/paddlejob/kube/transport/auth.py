"""Credentials in use: re-read now and then, renewed before they expire or when the server rejects them."""

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
"""The least time between two runs of a plugin, so that repeated 401s or failures do not run it in a loop."""
EXPIRY_MARGIN_SECONDS = 60.0


class Credentials(msgspec.Struct, frozen=True):
    """What a request authenticates with."""

    authorization: str = ""
    """The header's value, empty for none."""
    client_certificate: ClientCertificate | None = None

    def __repr__(self) -> str:
        """Show the methods in use, and no secret."""
        scheme = self.authorization.partition(" ")[0]
        return f"Credentials(authorization={scheme!r}, {self.client_certificate!r})"


class Authenticator(Protocol):
    """Where a transport gets its credentials from."""

    async def credentials(self) -> Credentials:
        """Return the credentials to use now.

        Raises CredentialsError if there are none.
        """
        ...

    async def renew(self, rejected: Credentials) -> bool:
        """Look for other credentials after a 401; tell whether there are some.

        Raises CredentialsError if that fails.
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
    """Credentials from the kubeconfig or from files, which are re-read every minute and after a 401."""

    def __init__(self, user: User, *, clock: Clock | None = None) -> None:
        self._user = user
        self._clock = clock or _loop_time
        self._files = [
            source
            for source in (user.token_file, user.client_certificate, user.client_key)
            if isinstance(source, Path)
        ]
        self._current: Credentials | None = None
        self._read_at = 0.0

    async def credentials(self) -> Credentials:
        """Return what was read within the last minute."""
        if self._current is None or (self._files and self._clock() - self._read_at >= FILE_AGE_SECONDS):
            return self._read()
        return self._current

    async def renew(self, rejected: Credentials) -> bool:
        """Read the files again."""
        return bool(self._files) and self._read() != rejected

    def _read(self) -> Credentials:
        """Read everything; the previous credentials stay in use while a file is being replaced."""
        self._read_at = self._clock()
        try:
            self._current = _credentials_of(self._user)
        except CredentialsError as error:
            if self._current is None:
                raise
            log.warning("%s; using the previous credentials", error)
        return self._current


class PluginAuthenticator:
    """Credentials from an exec plugin, over those in the kubeconfig.

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

    async def credentials(self) -> Credentials:
        """Return the credentials, from a new run if the last ones are about to expire."""
        if self._current is None or self._is_due():
            await self._run_unless(lambda: self._current is not None and not self._is_due())
        return await self._combined()

    async def renew(self, rejected: Credentials) -> bool:
        """Run the plugin, unless the rejected credentials have been replaced already."""
        if self._current is not None and await self._combined() == rejected:
            await self._run_unless(lambda: False)
        return await self._combined() != rejected

    async def _combined(self) -> Credentials:
        assert self._current is not None
        beside = await self._beside.credentials()
        return Credentials(
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
        """Return a moment before they expire: a minute, or a fifth of a short lifetime."""
        if expires_at is None:
            return None
        lifetime_seconds = max((expires_at - self._now()).total_seconds(), 0.0)
        return expires_at - timedelta(seconds=min(EXPIRY_MARGIN_SECONDS, lifetime_seconds / 5))

    def _is_still_valid(self) -> bool:
        if self._current is None:
            return False
        return self._current.expires_at is None or self._now() < self._current.expires_at


def _credentials_of(user: User) -> Credentials:
    certificate = None
    if user.client_certificate is not None and user.client_key is not None:
        certificate = ClientCertificate(_content(user.client_certificate), _content(user.client_key))
    return Credentials(_authorization(user), certificate)


def _authorization(user: User) -> str:
    if user.token_file is not None:
        token = _content(user.token_file).decode("utf-8", "replace").strip()
        if not token:
            raise CredentialsError(f"token file {user.token_file} is empty")
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
        raise CredentialsError("invalid token: it contains characters that are not allowed in an HTTP header")
    return f"Bearer {token}"


def _content(source: bytes | Path) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise CredentialsError(f"unable to read {source}: {error.strerror}") from error


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _utc_now() -> datetime:
    return datetime.now(UTC)
