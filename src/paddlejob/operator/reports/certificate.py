"""The certificate of the reports port, in a Secret that all replicas of the operator share.

It is self-signed and valid for ten years. Pods get it with the recorder and trust no other certificate. The
manifests create the Secret without data, and the operator fills it. To replace the certificate, clear tls.crt
and tls.key in the Secret; running pods report again after they restart.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
from contextlib import suppress

import msgspec

from paddlejob.api.meta import View
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import SECRETS
from paddlejob.kube.transport.tls import private_file

SECRET_NAME = "paddlejob-reports"  # noqa: S105  (its name)
DAYS = 3650
OPENSSL_SECONDS = 60.0


MAX_FLIGHTS = 4
"""Maximum number of messages that each side sends in a handshake."""


class CertificateError(Exception):
    """There is no usable certificate; the message has the reason."""


class Certificate(msgspec.Struct, frozen=True):
    """A certificate and its private key in PEM form."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        """Do not show the key."""
        return "Certificate(...)"

    def server_context(self) -> ssl.SSLContext:
        """Return a server context. Raises CertificateError if certificate and key do not match."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with private_file(f"{self.certificate}\n{self.key}".encode()) as path:
            try:
                context.load_cert_chain(path)
            except OSError as error:
                raise _unusable("tls.crt and tls.key are not a certificate and its key") from error
        return context

    def verify(self, host: str) -> None:
        """Raise CertificateError unless a client that trusts only this certificate accepts it for a host.

        This runs a handshake in memory, as a pod does with the operator.
        """
        server, client = self.server_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            client.load_verify_locations(cadata=self.certificate)
            sides = (
                client.wrap_bio(to_client, to_server, server_hostname=host),
                server.wrap_bio(to_server, to_client, server_side=True),
            )
            for side in sides * MAX_FLIGHTS:
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "verify_message", "") or str(error)
            raise _unusable(f"the certificate is not valid for {host}: {reason}") from error


def _unusable(reason: str) -> CertificateError:
    return CertificateError(f"Secret {SECRET_NAME}: {reason}; clear tls.crt and tls.key to get a new one")


class _Metadata(View, frozen=True):
    resource_version: str = ""


class _Secret(View, frozen=True):
    metadata: _Metadata = _Metadata()
    data: dict[str, str] = {}


async def shared_certificate(client: Client, namespace: str, host: str) -> Certificate:
    """Return the verified certificate in the operator's namespace; the first replica creates it.

    Raises CertificateError, or KubeError if the API server does not respond.
    """
    try:
        secret = await client.get(SECRETS, namespace, SECRET_NAME, type=_Secret)
    except errors.NotFoundError:
        secret = None
    if secret is None or not any(secret.data.values()):
        try:
            await _store(client, namespace, await _make(host), secret)
        except errors.ForbiddenError as error:
            raise CertificateError(
                f"Secret {SECRET_NAME} cannot be written; apply the manifests of this version: {error}"
            ) from error
        except (errors.AlreadyExistsError, errors.ConflictError):
            pass  # Another replica has created it.
        secret = await client.get(SECRETS, namespace, SECRET_NAME, type=_Secret)
    found = _read(secret)
    found.verify(host)
    return found


async def _store(client: Client, namespace: str, made: Certificate, empty: _Secret | None) -> None:
    """Write a certificate into the empty Secret, or create the Secret."""
    texts = {"tls.crt": made.certificate, "tls.key": made.key}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    if empty is None:
        metadata = {"name": SECRET_NAME, "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        await client.create(SECRETS, namespace, body)
    else:
        version = {"resourceVersion": empty.metadata.resource_version}
        await client.patch(SECRETS, namespace, SECRET_NAME, {"metadata": version, "data": data})


def _read(secret: _Secret) -> Certificate:
    try:
        certificate, key = (base64.b64decode(secret.data[name]).decode() for name in ("tls.crt", "tls.key"))
    except (KeyError, ValueError) as error:
        raise _unusable("tls.crt or tls.key is missing") from error
    return Certificate(certificate, key)


async def _make(host: str) -> Certificate:
    """Create a certificate with the openssl command; Python's ssl module cannot create one."""
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
            f"cannot run openssl to create a certificate: {error.strerror}; install it in the image, "
            f"or put tls.crt and tls.key into the Secret {SECRET_NAME} yourself"
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
        raise CertificateError(f"openssl could not create a certificate: {last}")
    key, mark, certificate = output.decode().partition("-----BEGIN CERTIFICATE-----")
    return Certificate(mark + certificate, key)


def _alternative_name(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
