"""Credential plugins: programs that print credentials (client.authentication.k8s.io/v1, v1beta1)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from datetime import datetime
from typing import Annotated

import msgspec

from paddlejob.kube.decoding import DECODE_ERRORS
from paddlejob.kube.errors import CredentialsError
from paddlejob.kube.transport.cluster import ExecPlugin
from paddlejob.kube.transport.tls import ClientCertificate

TIMEOUT_SECONDS = 60.0
INTERACTIVE_TIMEOUT_SECONDS = 300.0
_OUTPUT_SIZE_LIMIT = 1 << 20
_STDERR_SIZE = 1000
_END_SECONDS = 5.0


class PluginCredentials(msgspec.Struct, frozen=True):
    """What a plugin printed."""

    token: str = ""
    client_certificate: ClientCertificate | None = None
    expires_at: datetime | None = None


async def run_plugin(
    plugin: ExecPlugin, *, timeout_seconds: float | None = None, terminal: bool | None = None
) -> PluginCredentials:
    """Run the plugin once and return its credentials.

    Guarantees that the process has ended when this returns, fails or is cancelled.
    Raises CredentialsError with the plugin's name and what went wrong.
    """
    interactive = _is_interactive(plugin, terminal=_has_terminal() if terminal is None else terminal)
    limit = timeout_seconds or (INTERACTIVE_TIMEOUT_SECONDS if interactive else TIMEOUT_SECONDS)
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
    """Start the plugin, and end it if cancelled meanwhile.

    asyncio's own start, if cancelled, never returns once the plugin's children hold our pipes.
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
            # A session of its own lets us kill what the plugin started, but would take the terminal away.
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
    """Return what the plugin prints, up to a little more than the limit."""
    assert process.stdout is not None
    output = bytearray()
    while chunk := await process.stdout.read(65536):
        # Keep reading to the end: a full pipe keeps `wait` from returning.
        if len(output) <= _OUTPUT_SIZE_LIMIT:
            output += chunk
            if len(output) > _OUTPUT_SIZE_LIMIT:
                process.kill()
    return bytes(output)


async def _stderr(process: Process, *, forward: bool) -> str:
    """Return the tail of stderr; forward it all when a person may have to act on it."""
    assert process.stderr is not None
    tail = b""
    while chunk := await process.stderr.read(65536):
        tail = (tail + chunk)[-_STDERR_SIZE:]
        if forward:
            sys.stderr.write(chunk.decode("utf-8", "replace"))
            sys.stderr.flush()
    return tail.decode("utf-8", "replace").strip()


async def _end(process: Process, *, whole_group: bool) -> None:
    """Kill the plugin, or what it left behind with our pipes open; does nothing when all went well."""
    assert process.stdout is not None
    if process.returncode is not None and process.stdout.at_eof():
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if whole_group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
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
        # The output itself may hold a secret and is not shown.
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
