"""A dashboard over real local runs or over a served cluster, and a client that holds its cookie."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddlejob.client.errors import ClientError
from paddlejob.client.local_runs import LocalRuns
from tests.dashboard.pages import Pages, opened


@pytest.fixture
async def runs(tmp_path: Path) -> AsyncIterator[LocalRuns]:
    """Runs, of which none is left when the test is over."""
    found = LocalRuns(tmp_path / "runs")
    yield found
    for each in await found.list():
        if each.run.is_alive:
            with contextlib.suppress(ClientError):
                # Raised when it is just about to end.
                await each.stop()
            await each.wait(timeout_seconds=60)


@pytest.fixture
async def pages(runs: LocalRuns) -> AsyncIterator[Pages]:
    async with opened(runs) as found:
        assert (await found.get("/", query=found.query)).status == 200
        yield found
