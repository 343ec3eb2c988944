"""The scenes of pods on the simulated kubelet; tests/e2e plays them on a real one."""

from __future__ import annotations

import asyncio

import pytest

from contract.pod_scenes import SCENES, Scene, Shows, Stage, reports_phase_alone
from paddlejob.kube.client import Client
from paddlejob.kube.resource import NODES
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.pod_worker import Timing


def play(scene: Scene) -> list[Shows]:
    """Play a scene, and return the statuses that the kubelet reported."""

    async def main() -> list[Shows]:
        client = Client(ApiServer().transport("all"))
        await client.create(NODES, None, {"metadata": {"name": "node-0"}})
        timing = Timing(stop_seconds=(1000.0, 1000.0)) if scene.ignores_stop else Timing()
        kubelet = Kubelet(client, behaviour=scene.behaviour, init_behaviour=scene.behaviour, timing=timing)
        running = asyncio.create_task(kubelet.run())
        stage = Stage(client, "default", "any")
        await stage.play(scene)
        running.cancel()
        return stage.history

    return virtual_loop.run(main())


@pytest.mark.parametrize("name", SCENES)
def test_the_simulated_kubelet_reports(name: str) -> None:
    play(SCENES[name])


@pytest.mark.parametrize("name", ["a program that succeeds", "a program that fails", "a pod that is evicted"])
def test_the_simulated_kubelet_reports_the_phase_after_the_containers(name: str) -> None:
    assert reports_phase_alone(play(SCENES[name]))
