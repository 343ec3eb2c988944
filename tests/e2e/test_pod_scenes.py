"""The scenes that the simulated kubelet plays too, on a real kubelet: they must look the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from contract.pod_scenes import SCENES, Stage, reports_phase_alone
from devcluster import Cluster
from e2e.images import OPERATOR
from paddlejob.kube.client import Client
from paddlejob.kube.errors import NotFoundError
from paddlejob.kube.resource import NAMESPACES, Resource
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from tests.support.waiting import eventually_async

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
AT_ONCE = 8
"""Most of a scene is waiting, but the node is small."""


@asynccontextmanager
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace that is ready for pods."""
    created = await client.create(NAMESPACES, None, {"metadata": {"generateName": "scene-"}})
    name = created.metadata.name

    async def is_ready() -> bool:
        try:
            await client.get(SERVICE_ACCOUNTS, name, "default")
        except NotFoundError:
            return False
        return True

    await eventually_async(is_ready)
    yield name
    await client.delete(NAMESPACES, None, name)


async def test_a_real_kubelet_reports_the_same(bare_node: Cluster) -> None:
    broken: dict[str, str] = {}
    in_two_writes: list[str] = []
    slots = asyncio.Semaphore(AT_ONCE)

    async def play(client: Client, name: str) -> None:
        async with slots, namespace(client) as space:
            stage = Stage(client, space, OPERATOR)
            try:
                await stage.play(SCENES[name])
            except AssertionError as error:
                broken[name] = str(error)
            if reports_phase_alone(stage.history):
                in_two_writes.append(name)

    transport = HttpTransport(load_config(bare_node.kubeconfig))
    async with Client(transport) as client, asyncio.TaskGroup() as group:
        for name in SCENES:
            group.create_task(play(client, name))
    assert not broken, "\n".join(f"{name}: {error}" for name, error in broken.items())
    assert in_two_writes, (
        "the phase of no pod came after the ends of its containers, as it does in simulation"
    )
