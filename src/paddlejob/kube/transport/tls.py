"""TLS as Go clients do it, from certificates in memory."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from paddlejob.kube.errors import ConfigError, CredentialsError
from paddlejob.kube.transport.cluster import ClusterConfig
from paddlejob.kube.transport.url import without_password


class ClientCertificate(msgspec.Struct, frozen=True):
    """A certificate chain and its private key in PEM form."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Show no secret."""
        return "ClientCertificate(...)"


def tls_context(config: ClusterConfig, client_certificate: ClientCertificate | None = None) -> ssl.SSLContext:
    """Return the context that verifies a server and presents our certificate.

    Raises ConfigError or CredentialsError when a certificate cannot be used.
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
        # Text around the certificates may be in any encoding, and Python takes ASCII only.
        text = authority.decode("ascii", "backslashreplace") if authority else None
        context = ssl.create_default_context(cadata=text)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{config.source or 'certificate-authority'}: the certificate authority for "
            f"{without_password(config.server)} is not a PEM certificate"
        ) from error
    # Many clusters have authorities without a key identifier, which Python's strict mode refuses since 3.13.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # A trusted certificate need not be a root.
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
    """Give OpenSSL, which wants a path, a file that only we can read and that is removed afterwards."""
    if hasattr(os, "memfd_create"):
        # Never on a disk, and possible where every disk is read-only.
        with os.fdopen(os.memfd_create("certificate"), "wb") as memory:
            memory.write(content)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        import tempfile  # noqa: PLC0415 - takes long to import, and is for systems other than Linux

        with tempfile.NamedTemporaryFile(prefix="certificate-") as file:
            file.write(content)
            file.flush()
            yield file.name


def _refuse_encrypted_key() -> str:
    # Without this OpenSSL would ask on the terminal.
    raise CredentialsError("the client key is encrypted; remove its passphrase (openssl pkey -in KEY)")
