"""A laptop without earlier runs, and a cluster with an operator and a simulated kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from behaviour.stage import Stage
from devcluster import Cluster as ControlPlane
from paddlejob import Job
from paddlejob.client.cluster import Cluster
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.sdk.background import BACKGROUND
from simkube.apiserver.server import ApiServer
from tests.support.waiting import eventually

CRD = Path(__file__).parents[2] / "deploy" / "v1" / "crd.yaml"


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory, and no runs; none is left when the test is over."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("PADDLEJOB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    yield here
    for job in Job.list():
        job.delete(force=True)


class Stand:
    """A cluster that plays in the SDK's own event loop, in real time."""

    def __init__(self, client: Client, namespace: str, server: ApiServer | None = None) -> None:
        self.stage = Stage(client, namespace)
        self.namespace = namespace
        self.server = server
        self._is_over = asyncio.Event()
        self._playing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        async def act(_: Stage) -> None:
            await self._is_over.wait()

        self._playing = asyncio.create_task(self.stage.play(act))

    async def end(self) -> None:
        assert self._playing is not None
        self._is_over.set()
        await self._playing
        await self.stage.client.close()

    def write(self, pod: str, *lines: str) -> None:
        """Let the training container of a pod write lines, once it runs."""
        assert self.server is not None
        found = eventually(lambda: self._running(pod), says=lambda: f"{pod} runs")
        written = "".join(f"{line}\n" for line in lines).encode()

        async def write() -> None:
            assert self.server is not None
            self.server.container_logs.write(found, written)

        BACKGROUND.call(write)

    def _running(self, pod: str) -> dict | None:
        found = self.server.get(PODS, "default", pod)
        statuses = ((found or {}).get("status") or {}).get("containerStatuses") or [{}]
        return found if "running" in statuses[0].get("state", {}) else None


@pytest.fixture
def memory(laptop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    """A cluster in memory, which is that of the current context."""

    async def made() -> Stand:
        server = ApiServer(garbage_delay_seconds=(0.0, 0.1))
        server.install(yaml.safe_load(CRD.read_text()))
        monkeypatch.setattr(
            Cluster,
            "open",
            lambda context=None, namespace=None: Cluster(
                Client(server.transport("user")), namespace or "default"
            ),
        )
        return Stand(Client(server.transport("all")), "default", server)

    yield from _played(BACKGROUND.call(made))


@pytest.fixture
def real(
    control_plane: ControlPlane, namespace: str, laptop: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stand]:
    """A real API server in the same place."""
    control_plane.apply(CRD)
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))

    async def made() -> Stand:
        return Stand(Client(HttpTransport(load_config(control_plane.kubeconfig))), namespace)

    yield from _played(BACKGROUND.call(made))


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.apiserver)])
def cluster(request: pytest.FixtureRequest) -> Stand:
    """Both, one after the other."""
    return request.getfixturevalue(request.param)


def _played(stand: Stand) -> Iterator[Stand]:
    BACKGROUND.call(stand.begin)
    try:
        yield stand
    finally:
        BACKGROUND.call(stand.end)
