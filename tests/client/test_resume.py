"""Every line of every rank once and in order, while connections break all the time."""

from __future__ import annotations

import asyncio
import random

import pytest

from client.scene import Scene, play, texts
from paddlejob.client.logs.model import LogQuery
from simkube.build import job
from simkube.faults.transport import FaultRates, Faults
from simkube.kubelet.outcomes import Exit

pytestmark = pytest.mark.slow

LINES = 150
WORKERS = 3


@pytest.mark.parametrize("seed", range(6))
def test_every_line_comes_once_over_broken_connections(seed: int):
    faults = Faults(
        random.Random(seed), FaultRates(watch_cut=0.6, watch_closed=0.3, watch_refused=0.1, server_error=0.1)
    )

    async def act(scene: Scene) -> None:
        for rank in range(WORKERS):
            scene.fates.set(f"demo-worker-{rank}", Exit(0, 60))
        demo = await scene.submitted(job().worker(WORKERS))
        following = asyncio.create_task(texts(demo, LogQuery(follow=True)))
        await scene.runs(*(f"demo-worker-{rank}" for rank in range(WORKERS)))
        for number in range(LINES):
            for rank in range(WORKERS):
                scene.write(f"demo-worker-{rank}", f"line {number}", "the same")
            await asyncio.sleep(0.05)
            if scene.rng.random() < 0.05:
                scene.server.container_logs.cut()
        found = await following
        for rank in range(WORKERS):
            expected = [f"worker-{rank}: {text}" for n in range(LINES) for text in (f"line {n}", "the same")]
            assert [line for line in found if line.startswith(f"worker-{rank}:")] == expected
        assert scene.server.container_logs.opened > WORKERS

    play(act, seed=seed, around_user=faults.wrap)


def test_a_hundred_ranks_lose_and_double_nothing():
    ranks = [f"demo-worker-{rank}" for rank in range(100)]

    async def act(scene: Scene) -> None:
        for pod in ranks:
            scene.hold(pod)
        demo = await scene.submitted(job().worker(len(ranks)))
        following = asyncio.create_task(texts(demo, LogQuery(follow=True)))
        await scene.runs(*ranks)
        for number in range(20):
            for pod in ranks:
                scene.write(pod, *(f"line {number}.{part}" for part in range(20)))
            await asyncio.sleep(0.05)
            if number in (5, 12):
                scene.server.container_logs.cut()
        for pod in ranks:
            scene.let_go(pod)
        found = [line for line in await following if line.startswith("worker-")]
        expected = [f"line {number}.{part}" for number in range(20) for part in range(20)]
        for pod in ranks:
            rank = pod.removeprefix("demo-")
            assert [
                line.removeprefix(f"{rank}: ") for line in found if line.startswith(f"{rank}: ")
            ] == expected

    play(act)
