"""The certificate of the reports port, made with OpenSSL's program and shared in a Secret."""

from __future__ import annotations

import asyncio
import base64
import random
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import uvloop

from paddlejob.kube.client import Client
from paddlejob.kube.resource import SECRETS
from paddlejob.operator.reports import intake
from paddlejob.operator.reports.certificate import (
    SECRET_NAME,
    Certificate,
    CertificateError,
    _make,
    shared_certificate,
)
from paddlejob.operator.settings import ReportSettings
from simkube.apiserver import refusals
from simkube.apiserver.rules.kinds import ResourceType
from simkube.apiserver.server import ApiServer
from tests.support.waiting import eventually_async

HOST = "paddle-controller-manager-reports.paddle-system.svc"
NAMESPACE = "paddle-system"


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_certificate_is_made_on_every_loop_that_the_operator_runs_on(loop):
    """uvloop gives a program a socket for its output, which cannot be opened by its name."""
    with asyncio.Runner(loop_factory=loop) as runner:
        made = runner.run(_make(HOST))
    assert made.certificate.startswith("-----BEGIN CERTIFICATE-----")
    made.verify(HOST)


@pytest.fixture(scope="module")
def made() -> Certificate:
    return asyncio.run(_make(HOST))


@pytest.fixture(scope="module")
def other() -> Certificate:
    return asyncio.run(_make("127.0.0.1"))


@pytest.fixture
def server() -> ApiServer:
    server = ApiServer(now=lambda: datetime.now(UTC))
    server.register(ResourceType(resource=SECRETS))
    return server


def client_of(server: ApiServer) -> Client:
    return Client(server.transport("operator"), rng=random.Random(0))


def secret(certificate: str | None = None, key: str | None = None) -> dict:
    metadata = {"name": SECRET_NAME, "namespace": NAMESPACE, "labels": {"a": "b"}}
    texts = {"tls.crt": certificate, "tls.key": key}
    data = {
        name: base64.b64encode(text.encode()).decode() for name, text in texts.items() if text is not None
    }
    return {"metadata": metadata, **({"data": data} if data else {})}


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(None, id="no Secret, as in the manifests of earlier versions"),
        pytest.param(secret(), id="the Secret of the manifests"),
        pytest.param(secret("", ""), id="a Secret that was cleared"),
    ],
)
async def test_the_first_replica_fills_the_secret_and_all_use_it(server, before):
    if before:
        server.create(SECRETS, before)
    first, second = await asyncio.gather(
        *(shared_certificate(client_of(server), NAMESPACE, HOST) for _ in range(2))
    )
    assert first == second
    assert await shared_certificate(client_of(server), NAMESPACE, HOST) == first
    labels = server.get(SECRETS, NAMESPACE, SECRET_NAME)["metadata"].get("labels")
    assert labels == (before and before["metadata"]["labels"])


MISMATCH = "tls.crt and tls.key are not a certificate and its key"
CONTENTS = {
    "no key": (lambda made, _: (made.certificate, None), "tls.crt or tls.key is missing"),
    "no certificate": (lambda made, _: ("hello", made.key), MISMATCH),
    "the key of another": (
        lambda made, other: (made.certificate, other.key),
        MISMATCH,
    ),
    "the name of another": (
        lambda _, other: (other.certificate, other.key),
        f"not valid for {HOST}: Hostname mismatch",
    ),
}


@pytest.mark.parametrize(("content", "message"), CONTENTS.values(), ids=CONTENTS)
async def test_a_certificate_is_verified_before_use(server, made, other, content, message):
    server.create(SECRETS, secret(*content(made, other)))
    before = server.get(SECRETS, NAMESPACE, SECRET_NAME)
    with pytest.raises(CertificateError, match=message) as caught:
        await shared_certificate(client_of(server), NAMESPACE, HOST)
    assert str(caught.value).endswith("; clear tls.crt and tls.key to get a new one")
    assert server.get(SECRETS, NAMESPACE, SECRET_NAME) == before


async def test_a_secret_that_may_not_be_created_is_explained(server):
    def refuse(request) -> None:
        raise refusals.refusal(403, "Forbidden", "cannot create resource secrets")

    server.admission.append(refuse)
    with pytest.raises(CertificateError, match="apply the manifests of this version"):
        await shared_certificate(client_of(server), NAMESPACE, HOST)


async def test_a_changed_certificate_is_used_and_a_broken_one_is_not(server, monkeypatch):
    monkeypatch.setattr(intake, "CHECK_SECONDS", 0.02)
    state, settings = (
        SimpleNamespace(recorder=None, listeners=[]),
        ReportSettings("https://127.0.0.1:1", "127.0.0.1:0"),
    )
    taking = intake.ReportIntake(
        client_of(server),
        state,
        None,
        settings,
        now=lambda: datetime.now(UTC),
        namespace=NAMESPACE,
        record_event=print,
    )
    running = asyncio.create_task(taking.run())

    def trusted() -> str:
        return state.recorder.files["ca.crt"] if state.recorder else ""

    def write(certificate: str, key: str) -> None:
        server.patch(SECRETS, NAMESPACE, SECRET_NAME, {"data": secret(certificate, key)["data"]})

    try:
        first = await eventually_async(trusted)
        write("broken", "broken")
        await eventually_async(lambda: "not a certificate" in taking._logged)
        assert trusted() == first
        write("", "")
        await eventually_async(lambda: trusted() != first)
    finally:
        running.cancel()
        await asyncio.wait([running])
