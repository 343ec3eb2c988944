"""Every act is played twice: on the in-memory API server and on a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from behaviour.stage import Stage
from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from tests.support.definitions import PADDLE_JOB_CRD

Act = Callable[[Stage], Awaitable[None]]


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.apiserver)])
def perform(request: pytest.FixtureRequest) -> Callable[[Act], None]:
    """Return a function that plays an act on a fresh stage."""
    if request.param == "memory":
        return _in_memory
    cluster = request.getfixturevalue("control_plane")
    cluster.apply(PADDLE_JOB_CRD)
    namespace = request.getfixturevalue("namespace")
    return lambda act: asyncio.run(_on_a_real_one(cluster.kubeconfig, namespace, act))


def _in_memory(act: Act) -> None:
    async def main() -> None:
        server = ApiServer(garbage_delay_seconds=(0.0, 0.1))
        server.install(PADDLE_JOB_CRD)
        await Stage(Client(server.transport("all")), "default").play(act)

    virtual_loop.run(main(), seed=1)


async def _on_a_real_one(kubeconfig: Path, namespace: str, act: Act) -> None:
    async with Client(HttpTransport(load_config(kubeconfig))) as client:
        await Stage(client, namespace).play(act)
