"""Creates TLS contexts that behave like Go clients, from certificates in memory."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from paddlejob.kube.errors import ConfigError, CredentialsError
from paddlejob.kube.transport.cluster import ClusterConfig, without_password


class ClientCertificate(msgspec.Struct, frozen=True):
    """A certificate chain and its private key in PEM form."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Show no secrets."""
        return "ClientCertificate(...)"


def tls_context(config: ClusterConfig, client_certificate: ClientCertificate | None = None) -> ssl.SSLContext:
    """Return the context that verifies the server and presents our certificate.

    Raises ConfigError or CredentialsError if a certificate cannot be used.
    """
    context = _verifying_context(config)
    if config.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if client_certificate is not None:
        _load(context, client_certificate)
    return context


def _verifying_context(config: ClusterConfig) -> ssl.SSLContext:
    try:
        authority = config.certificate_authority
        # Text around the certificates can have any encoding, but Python accepts only ASCII.
        text = authority.decode("ascii", "backslashreplace") if authority else None
        context = ssl.create_default_context(cadata=text)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{config.source or 'certificate-authority'}: the certificate authority for "
            f"{without_password(config.server)} is not a PEM certificate"
        ) from error
    # Since 3.13 Python's strict mode rejects authorities without a key identifier, which many clusters have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # A trusted certificate need not be a root certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load(context: ssl.SSLContext, client_certificate: ClientCertificate) -> None:
    with private_file(client_certificate.certificate + b"\n" + client_certificate.key) as path:
        try:
            context.load_cert_chain(path, password=_refuse_encrypted_key)
        except OSError as error:
            detail = getattr(error, "reason", None) or error.strerror
            raise CredentialsError(f"unable to use the client certificate and key: {detail}") from error


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """Yield the path of a temporary private file, because OpenSSL accepts only paths."""
    if hasattr(os, "memfd_create"):
        # Not on disk, and possible with a read-only file system.
        with os.fdopen(os.memfd_create("certificate"), "wb") as memory:
            memory.write(content)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        import tempfile  # noqa: PLC0415 - slow to import, and not needed on Linux

        with tempfile.NamedTemporaryFile(prefix="certificate-") as file:
            file.write(content)
            file.flush()
            yield file.name


def _refuse_encrypted_key() -> str:
    # Without this callback OpenSSL would prompt on the terminal.
    raise CredentialsError("the client key is encrypted; remove its passphrase (openssl pkey -in KEY)")
