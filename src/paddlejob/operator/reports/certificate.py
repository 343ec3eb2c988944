"""The certificate that reports are sent to, in a Secret that all replicas of the operator share.

It signs itself: pods are given it beside the recorder, and trust it and no other. It lasts ten years. To
replace it, delete the Secret and restart the operator; pods that run report again after their next start.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
from contextlib import suppress

import msgspec

from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import SECRETS
from paddlejob.kube.transport.tls import private_file

SECRET_NAME = "paddlejob-reports"  # noqa: S105  (its name)
DAYS = 3650
OPENSSL_SECONDS = 60.0


class CertificateError(Exception):
    """There is no certificate and none could be made; the message says why."""


class Certificate(msgspec.Struct, frozen=True):
    """A certificate and its private key in PEM form."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        """Show no secret."""
        return "Certificate(...)"

    def server_context(self) -> ssl.SSLContext:
        """Return what a server presents it with. Raises CertificateError where that is not possible."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with private_file(f"{self.certificate}\n{self.key}".encode()) as path:
            try:
                context.load_cert_chain(path)
            except OSError as error:
                raise CertificateError(
                    f"Secret {SECRET_NAME}: not a certificate and its key; delete it to get a new one"
                ) from error
        return context


class _Secret(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


async def shared_certificate(client: Client, namespace: str, host: str) -> Certificate:
    """Return the certificate in the operator's namespace; the first who asks makes it.

    Raises CertificateError, and KubeError when the API server does not answer.
    """
    try:
        return _read(await client.get(SECRETS, namespace, SECRET_NAME, type=_Secret))
    except errors.NotFoundError:
        made = await _make(host)
    data = {"tls.crt": made.certificate, "tls.key": made.key}
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET_NAME, "namespace": namespace},
        "type": "kubernetes.io/tls",
        "stringData": data,
    }
    try:
        await client.create(SECRETS, namespace, body)
    except errors.AlreadyExistsError:
        return _read(await client.get(SECRETS, namespace, SECRET_NAME, type=_Secret))
    return made


def _read(secret: _Secret) -> Certificate:
    try:
        certificate, key = (base64.b64decode(secret.data[name]).decode() for name in ("tls.crt", "tls.key"))
    except (KeyError, ValueError) as error:
        raise CertificateError(
            f"Secret {SECRET_NAME} has no tls.crt and tls.key; delete it to get a new one"
        ) from error
    return Certificate(certificate, key)


async def _make(host: str) -> Certificate:
    """Make a certificate with OpenSSL's own program: Python can use one, and not make one."""
    arguments = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", str(DAYS), "-subj", "/CN=paddlejob-operator", "-keyout", "-"),
        *("-addext", f"subjectAltName={_alternative_name(host)}"),
        *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
    ]
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise CertificateError(
            f"cannot run openssl to make a certificate: {error.strerror}; install it in the image, "
            f"or create the Secret {SECRET_NAME} of type kubernetes.io/tls yourself"
        ) from error
    try:
        async with asyncio.timeout(OPENSSL_SECONDS):
            output, complaint = await process.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        last = (complaint.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise CertificateError(f"openssl could not make a certificate: {last}")
    key, mark, certificate = output.decode().partition("-----BEGIN CERTIFICATE-----")
    return Certificate(mark + certificate, key)


def _alternative_name(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
