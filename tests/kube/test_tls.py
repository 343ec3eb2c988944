from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from paddlejob.kube.errors import ConfigError, CredentialsError
from paddlejob.kube.transport.cluster import ClusterConfig
from paddlejob.kube.transport.tls import ClientCertificate, tls_context

DATA = Path(__file__).parent / "data"
CERTIFICATE = (DATA / "client.crt").read_bytes()
KEY = (DATA / "client.key").read_bytes()


def config(**options):
    return ClusterConfig(server="https://kube.test", source="a file", **options)


def test_the_given_authority_is_the_only_one():
    context = tls_context(config(certificate_authority=(DATA / "ca.crt").read_bytes()))
    assert [authority["subject"] for authority in context.get_ca_certs()] == [((("commonName", "ca"),),)]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize(
    "comment", ["# Zertifizierungsstelle für Köln\n".encode(), "# Köln\n".encode("latin-1"), b"\xff\x00\n"]
)
def test_an_authority_may_have_comments_in_any_encoding(comment):
    authority = (DATA / "ca.crt").read_bytes()
    context = tls_context(config(certificate_authority=comment + authority + b"\n" + comment + authority))
    assert [found["subject"] for found in context.get_ca_certs()] == [((("commonName", "ca"),),)]


def test_verification_is_that_of_go_clients():
    flags = tls_context(config()).verify_flags
    assert not flags & ssl.VERIFY_X509_STRICT
    assert flags & ssl.VERIFY_X509_PARTIAL_CHAIN


def test_insecure_checks_nothing():
    context = tls_context(config(insecure_skip_tls_verify=True))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize("authority", [b"text", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nx\n"])
def test_an_authority_that_is_none(authority):
    with pytest.raises(ConfigError, match=r"a file: the certificate authority for https://.* is not a PEM"):
        tls_context(config(certificate_authority=authority))


def test_a_client_certificate_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tls_context(config(), ClientCertificate(CERTIFICATE, KEY))
    assert list(tmp_path.iterdir()) == []


def test_a_client_certificate_needs_no_disk(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    tls_context(config(), ClientCertificate(CERTIFICATE, KEY))


@pytest.mark.parametrize(
    ("certificate", "key", "sentence"),
    [
        pytest.param(b"text", b"text", "unable to use the client certificate and key", id="no PEM"),
        pytest.param(CERTIFICATE, (DATA / "next-client.key").read_bytes(), "MISMATCH", id="another's key"),
        pytest.param(
            CERTIFICATE,
            (DATA / "encrypted-client.key").read_bytes(),
            "key is encrypted",
            id="an encrypted key",
        ),
    ],
)
def test_a_client_certificate_that_cannot_be_used(certificate, key, sentence):
    with pytest.raises(CredentialsError, match=sentence):
        tls_context(config(), ClientCertificate(certificate, key))


def test_no_secret_in_a_representation():
    assert repr(ClientCertificate(CERTIFICATE, KEY)) == "ClientCertificate(...)"
