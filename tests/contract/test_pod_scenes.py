"""The scenes of pods on the simulated kubelet; tests/e2e plays them on a real one."""

from __future__ import annotations

import asyncio

import pytest

from contract.pod_scenes import SCENES, Stage
from paddlejob.kube.client import Client
from paddlejob.testing import virtual_loop
from paddlejob.testing.apiserver.fake_api import ApiServer
from paddlejob.testing.kubelet.kubelet import Kubelet
from paddlejob.testing.kubelet.pod_worker import Timing


@pytest.mark.parametrize("name", SCENES)
def test_the_simulated_kubelet_reports(name: str) -> None:
    scene = SCENES[name]

    async def main() -> None:
        client = Client(ApiServer().transport("all"))
        timing = Timing(stop_seconds=(1000.0, 1000.0)) if scene.ignores_stop else Timing()
        kubelet = Kubelet(client, behaviour=scene.behaviour, init_behaviour=scene.behaviour, timing=timing)
        running = asyncio.create_task(kubelet.run())
        await Stage(client, "default", "any").play(scene)
        running.cancel()

    virtual_loop.run(main())
