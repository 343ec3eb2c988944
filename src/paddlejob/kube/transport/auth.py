"""Provides credentials; reads them again periodically, and renews them before expiry or after a 401.

Credential plugins are programs that print credentials (client.authentication.k8s.io/v1, v1beta1).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

from paddlejob.kube.decoding import DECODE_ERRORS
from paddlejob.kube.errors import CredentialsError
from paddlejob.kube.transport.cluster import ExecPlugin, User
from paddlejob.kube.transport.tls import ClientCertificate

log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Monotonic seconds."""

FILE_AGE_SECONDS = 60.0
PLUGIN_PAUSE_SECONDS = 5.0
"""Minimum time between two runs of a plugin, so that repeated 401s or failures do not run it in a loop."""
EXPIRY_MARGIN_SECONDS = 60.0
PLUGIN_TIMEOUT_SECONDS = 60.0
PLUGIN_INTERACTIVE_TIMEOUT_SECONDS = 300.0
_OUTPUT_SIZE_LIMIT = 1 << 20
_STDERR_SIZE = 1000
_PLUGIN_END_SECONDS = 5.0


class Credentials(msgspec.Struct, frozen=True):
    authorization: str = ""
    """The value of the Authorization header, or empty."""
    client_certificate: ClientCertificate | None = None

    def __repr__(self) -> str:
        """Show no secrets."""
        scheme = self.authorization.partition(" ")[0]
        return f"Credentials(authorization={scheme!r}, {self.client_certificate!r})"


class Authenticator(Protocol):
    """Provides the credentials of a transport."""

    async def credentials(self) -> Credentials:
        """Return the current credentials. Raises CredentialsError if there are none."""
        ...

    async def renew(self, rejected: Credentials) -> bool:
        """Try to get new credentials after a 401, and return whether they differ from the rejected ones.

        Raises CredentialsError if that fails.
        """
        ...


def authenticator_for(user: User) -> Authenticator:
    files = FileAuthenticator(user)
    if user.exec_plugin is None:
        return files
    plugin = user.exec_plugin
    return PluginAuthenticator(lambda: run_plugin(plugin), files)


class FileAuthenticator:
    """Credentials from the kubeconfig or from files; files are read again every minute and after a 401."""

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
        if self._current is None or (self._files and self._clock() - self._read_at >= FILE_AGE_SECONDS):
            return self._read()
        return self._current

    async def renew(self, rejected: Credentials) -> bool:
        return bool(self._files) and self._read() != rejected

    def _read(self) -> Credentials:
        """Read all files; keep the previous credentials if that fails, as during a file's replacement."""
        self._read_at = self._clock()
        try:
            self._current = _credentials_of(self._user)
        except CredentialsError as error:
            if self._current is None:
                raise
            log.warning("%s; using the previous credentials", error)
        return self._current


class PluginAuthenticator:
    """Credentials from an exec plugin, which override credentials in the kubeconfig.

    Guarantees one run at a time for any number of waiting requests.
    """

    def __init__(
        self,
        run: Callable[[], Awaitable[PluginCredentials]],
        fallback: Authenticator,
        *,
        clock: Clock | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._run = run
        self._fallback = fallback
        self._clock = clock or _loop_time
        self._now = now or _utc_now
        self._lock = asyncio.Lock()
        self._current: PluginCredentials | None = None
        self._renew_at: datetime | None = None
        self._ran_at: float | None = None
        self._failure: CredentialsError | None = None

    async def credentials(self) -> Credentials:
        if self._current is None or self._is_due():
            await self._run_unless(lambda: self._current is not None and not self._is_due())
        return await self._combined()

    async def renew(self, rejected: Credentials) -> bool:
        """Run the plugin unless the rejected credentials have been replaced already."""
        if self._current is not None and await self._combined() == rejected:
            await self._run_unless(lambda: False)
        return await self._combined() != rejected

    async def _combined(self) -> Credentials:
        assert self._current is not None
        fallback = await self._fallback.credentials()
        return Credentials(
            _bearer(self._current.token) if self._current.token else fallback.authorization,
            self._current.client_certificate or fallback.client_certificate,
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
                # A new exception each time: raising the same one again accumulates tracebacks.
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
        """Return the time to renew: a minute, or a fifth of a short lifetime, before expiry."""
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
    """Return the Authorization header for basic authentication."""
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


class PluginCredentials(msgspec.Struct, frozen=True):
    token: str = ""
    client_certificate: ClientCertificate | None = None
    expires_at: datetime | None = None


async def run_plugin(
    plugin: ExecPlugin, *, timeout_seconds: float | None = None, terminal: bool | None = None
) -> PluginCredentials:
    """Run the plugin once and return its credentials.

    Guarantees that the process has ended when this returns, fails or is cancelled.
    Raises CredentialsError with the plugin's name and the reason.
    """
    interactive = _is_interactive(plugin, terminal=_has_terminal() if terminal is None else terminal)
    limit = timeout_seconds or (PLUGIN_INTERACTIVE_TIMEOUT_SECONDS if interactive else PLUGIN_TIMEOUT_SECONDS)
    process = await _start(plugin, interactive=interactive)
    try:
        async with asyncio.timeout(limit):
            output, stderr, code = await asyncio.gather(
                _output(process), _stderr(process, forward=interactive), process.wait()
            )
    except TimeoutError:
        raise CredentialsError(f"{_name(plugin)} timed out after {limit:g} seconds") from None
    finally:
        await _end(process, whole_group=not interactive)
    if len(output) > _OUTPUT_SIZE_LIMIT:
        raise CredentialsError(f"{_name(plugin)} printed more than {_OUTPUT_SIZE_LIMIT} bytes")
    if code != 0:
        raise CredentialsError(
            f"{_name(plugin)} failed with exit code {code}{_quoted(stderr)}{_hint(plugin)}"
        )
    return _parse(output, plugin, stderr)


def _is_interactive(plugin: ExecPlugin, *, terminal: bool) -> bool:
    if plugin.interactive_mode == "Always" and not terminal:
        raise CredentialsError(
            f"{_name(plugin)} requires a terminal (interactiveMode: Always), and there is none"
        )
    return terminal and plugin.interactive_mode != "Never"


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


async def _start(plugin: ExecPlugin, *, interactive: bool) -> Process:
    """Start the plugin; kill it on cancellation during the start.

    A cancelled `create_subprocess_exec` never returns if the plugin's children keep our pipes open.
    """
    starting = asyncio.ensure_future(_spawn(plugin, interactive=interactive))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(CredentialsError):
            await _end(await starting, whole_group=not interactive)
        raise


async def _spawn(plugin: ExecPlugin, *, interactive: bool) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env={
                **os.environ,
                **plugin.env,
                "KUBERNETES_EXEC_INFO": _exec_info(plugin, interactive=interactive),
            },
            stdin=None if interactive else DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            # A new session allows killing the plugin's children, but detaches it from the terminal.
            start_new_session=not interactive,
        )
    except OSError as error:
        raise CredentialsError(f"unable to run {_name(plugin)}: {error.strerror}{_hint(plugin)}") from error


def _exec_info(plugin: ExecPlugin, *, interactive: bool) -> str:
    spec: dict[str, object] = {"interactive": interactive}
    if plugin.cluster_info is not None:
        spec["cluster"] = plugin.cluster_info
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    return msgspec.json.encode(info).decode()


async def _output(process: Process) -> bytes:
    """Return the plugin's output, up to slightly more than the limit."""
    assert process.stdout is not None
    output = bytearray()
    while chunk := await process.stdout.read(65536):
        # Read to the end, because `wait` does not return while the pipe is full.
        if len(output) <= _OUTPUT_SIZE_LIMIT:
            output += chunk
            if len(output) > _OUTPUT_SIZE_LIMIT:
                process.kill()
    return bytes(output)


async def _stderr(process: Process, *, forward: bool) -> str:
    """Return the tail of stderr; `forward` copies all of it to the terminal."""
    assert process.stderr is not None
    tail = b""
    while chunk := await process.stderr.read(65536):
        tail = (tail + chunk)[-_STDERR_SIZE:]
        if forward:
            sys.stderr.write(chunk.decode("utf-8", "replace"))
            sys.stderr.flush()
    return tail.decode("utf-8", "replace").strip()


async def _end(process: Process, *, whole_group: bool) -> None:
    """Kill the plugin or its children, unless they have ended and closed our pipes."""
    assert process.stdout is not None
    if process.returncode is not None and process.stdout.at_eof():
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if whole_group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PLUGIN_END_SECONDS):
            await process.communicate()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    api_version: str
    status: _Status | None = None


def _parse(output: bytes, plugin: ExecPlugin, stderr: str) -> PluginCredentials:
    try:
        printed = msgspec.json.decode(output, type=_ExecCredential)
    except DECODE_ERRORS as error:
        # Do not show the output, which may contain a secret.
        raise CredentialsError(
            f"{_name(plugin)} did not print an ExecCredential: {error}{_quoted(stderr)}"
        ) from None
    if (printed.kind, printed.api_version) != ("ExecCredential", plugin.api_version):
        raise CredentialsError(
            f"{_name(plugin)} printed {printed.api_version} {printed.kind} instead of "
            f"{plugin.api_version} ExecCredential; check apiVersion in the kubeconfig"
        )
    return _credentials(printed.status or _Status(), plugin)


def _credentials(status: _Status, plugin: ExecPlugin) -> PluginCredentials:
    certificate, key = status.client_certificate_data, status.client_key_data
    if bool(certificate) != bool(key):
        raise CredentialsError(f"{_name(plugin)} printed only one of clientCertificateData and clientKeyData")
    if not status.token and not certificate:
        raise CredentialsError(f"{_name(plugin)} printed neither a token nor a client certificate")
    return PluginCredentials(
        token=status.token or "",
        client_certificate=ClientCertificate(certificate.encode(), key.encode())
        if certificate and key
        else None,
        expires_at=status.expiration_timestamp,
    )


def _name(plugin: ExecPlugin) -> str:
    return f"credential plugin {plugin.command!r}"


def _quoted(stderr: str) -> str:
    return f"; stderr: {stderr}" if stderr else ""


def _hint(plugin: ExecPlugin) -> str:
    return f"\n{plugin.install_hint.strip()}" if plugin.install_hint else ""
