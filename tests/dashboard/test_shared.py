"""What a shared dashboard does by itself; tests/apiserver has what it does with tokens."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import aiohttp
import pytest

from paddlejob.client.cluster import Cluster
from paddlejob.dashboard import shared, users
from paddlejob.dashboard.desk import MOST_WATCHED, Desk
from paddlejob.dashboard.shared import Certificate, SharedDashboard
from paddlejob.kube.client import Client
from paddlejob.kube.transport.cluster import ClusterConfig
from paddlejob.kube.transport.http import HttpTransport
from tests.dashboard.pages import Pages

NOWHERE = ClusterConfig(server="http://127.0.0.1:1")


def write_certificate(files: Certificate, name: str) -> None:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    subprocess.run(
        [*command.split(), "-subj", f"/CN={name}", "-out", files.chain, "-keyout", files.key],
        check=True,
        capture_output=True,
    )


async def test_a_renewed_certificate_is_served_and_a_broken_one_is_not(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(shared, "CERTIFICATE_SECONDS", 0.01)
    files = Certificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    await asyncio.to_thread(write_certificate, files, "first")
    async with SharedDashboard(NOWHERE) as dashboard:
        port = await dashboard.serve("127.0.0.1:0", files)

        async def served() -> str:
            return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))

        first = await served()
        assert first == files.chain.read_text()
        files.chain.write_text("half a certif")
        await asyncio.sleep(0.05)
        assert await served() == first
        await asyncio.to_thread(write_certificate, files, "second")
        async with asyncio.timeout(30):
            while await served() == first:
                await asyncio.sleep(0.01)
        assert await served() == files.chain.read_text()


async def test_tokens_are_reviewed_whatever_happens(monkeypatch, caplog):
    monkeypatch.setattr(users, "REVIEW_SECONDS", 0.0)
    reviewed = asyncio.Event()

    async def review() -> None:
        if not caplog.records:
            raise ValueError("a bug")
        reviewed.set()

    async with SharedDashboard(NOWHERE) as dashboard:
        monkeypatch.setattr(dashboard.users, "review", review)
        async with asyncio.timeout(30):
            await reviewed.wait()
    assert "tokens are reviewed again" in caplog.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Origin": "http://["}, 403, id="half an address"),
        pytest.param({"Origin": "null"}, 403, id="no address"),
        pytest.param(
            {"Origin": "http://[", "Sec-Fetch-Site": "same-origin"}, 403, id="what no browser sends"
        ),
        pytest.param({"Host": "[::1"}, 421, id="half a name"),
    ],
)
async def test_an_address_that_is_none_is_refused(headers, status):
    async with SharedDashboard(NOWHERE) as dashboard, aiohttp.ClientSession() as session:
        pages = Pages(f"http://127.0.0.1:{await dashboard.serve('127.0.0.1:0')}", session)
        assert (await pages.post("/api/sign-in", {"token": "a"}, headers=headers)).status == status


async def test_namespaces_that_nobody_looks_at_are_not_all_watched():
    cluster = Cluster(Client(HttpTransport(NOWHERE)))
    desk = Desk(cluster, scope="default", user="somebody")
    for number in range(5 * MOST_WATCHED):
        desk.watch(f"namespace-{number}")
    assert len(desk._watched) <= MOST_WATCHED
    await desk.close()
    await cluster.close()
