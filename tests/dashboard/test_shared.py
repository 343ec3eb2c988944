"""What a shared dashboard does by itself; tests/apiserver has what it does with tokens."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

from paddlejob.dashboard import shared, users
from paddlejob.dashboard.shared import Certificate, SharedDashboard
from paddlejob.kube.transport.cluster import ClusterConfig

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
