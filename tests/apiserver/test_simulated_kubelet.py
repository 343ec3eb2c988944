"""The simulated kubelet on a real API server, where benchmarks use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from devcluster import Cluster
from paddlejob.api.meta import JsonObject
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.outcomes import Exit, Outcome, RunForever, crash
from simkube.kubelet.pod_worker import Timing
from tests.simulator.behaviour import config_map, pod

OUTCOMES: dict[str, Outcome] = {"succeeds": Exit(0, 0.1), "fails": crash(3, after_seconds=0.1)}


@pytest.fixture
async def client(control_plane: Cluster) -> AsyncIterator[Client]:
    async with Client(HttpTransport(load_config(control_plane.kubeconfig))) as client:
        yield client


@pytest.fixture(params=[False, True], ids=["step by step", "fast"])
async def kubelet(request: pytest.FixtureRequest, client: Client, namespace: str) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(
        client,
        behaviour=lambda body, *_: OUTCOMES.get(body["metadata"]["name"], RunForever()),
        namespace=namespace,
        timing=Timing(start_seconds=(0.0, 0.1), stop_seconds=(0.0, 0.1)),
        fast=request.param,
    )
    task = asyncio.create_task(kubelet.run())
    yield kubelet
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


async def until(client: Client, namespace: str, name: str, holds: Callable[[JsonObject], bool]) -> JsonObject:
    """Wait until a pod's status fits."""
    async with asyncio.timeout(30):
        while True:
            body = await client.get(PODS, namespace, name)
            if holds(body["status"]):
                return body
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("kubelet")
@pytest.mark.parametrize(("name", "phase", "code"), [("succeeds", "Succeeded", 0), ("fails", "Failed", 3)])
async def test_a_pod_ends(client: Client, namespace: str, name: str, phase: str, code: int) -> None:
    await client.create(PODS, namespace, pod(name, restartPolicy="Never"))
    body = await until(client, namespace, name, lambda status: status["phase"] in {"Succeeded", "Failed"})
    assert body["status"]["phase"] == phase
    assert body["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code
    assert body["spec"]["nodeName"].startswith("node-")


async def test_a_kick_starts_a_container_whose_config_map_was_missing(
    client: Client, namespace: str, kubelet: Kubelet
) -> None:
    container = {"name": "main", "image": "i", "envFrom": [{"configMapRef": {"name": "config"}}]}
    await client.create(PODS, namespace, pod("waits", containers=[container]))
    body = await until(client, namespace, "waits", lambda status: "podIP" in status)
    waiting = body["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    await client.create(CONFIG_MAPS, namespace, config_map("config"))
    await client.patch(PODS, namespace, "waits", {"metadata": {"annotations": {"kick": "1"}}})
    await until(client, namespace, "waits", lambda status: status["phase"] == "Running")
    assert kubelet.starts[0].environment == {"key": "value"}


@pytest.mark.usefixtures("kubelet")
async def test_a_deleted_pod_goes(client: Client, namespace: str) -> None:
    await client.create(PODS, namespace, pod("stays"))
    await until(client, namespace, "stays", lambda status: status["phase"] == "Running")
    await client.delete(PODS, namespace, "stays")
    async with asyncio.timeout(30):
        while (await client.list(PODS, namespace)).items:
            await asyncio.sleep(0.02)
