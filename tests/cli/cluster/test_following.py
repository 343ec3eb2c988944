"""`submit --watch`: the lines that a person sees while the job runs, in virtual time."""

from __future__ import annotations

import asyncio

from client.scene import Scene, play
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.cli.follow import print_states
from simkube.build import job


async def report(scene: Scene, **progress: object) -> None:
    body = {"status": {"progress": progress}}
    await scene.client.patch(PADDLE_JOBS, "default", "demo", body, subresource="status")


def test_training_is_shown_at_intervals_and_only_when_it_changes(capsys):
    async def act(scene: Scene) -> None:
        scene.hold("demo-worker-0")
        demo = await scene.submitted(job().worker(1))
        watching = asyncio.create_task(print_states(demo))
        await demo.wait("running", timeout_seconds=60)
        for step in range(1, 31):
            await report(scene, step=step, steps=30, loss="0.5", eta=f"{30 - step}s")
            await asyncio.sleep(1)
        await asyncio.sleep(10)
        for second in range(30):
            await report(scene, step=30, steps=30, loss="0.5", updated=f"2030-01-01T00:00:{second:02}Z")
            await asyncio.sleep(1)
        scene.let_go("demo-worker-0")
        await watching

    play(act)
    shown = [line for line in capsys.readouterr().err.splitlines() if "step" in line]
    assert shown == [
        "demo step 1/30, loss 0.5, ETA 29s",
        "demo step 11/30, loss 0.5, ETA 19s",
        "demo step 21/30, loss 0.5, ETA 9s",
        "demo step 30/30, loss 0.5, ETA 0s",
    ]


def test_a_job_without_an_operator_is_reported_once(capsys):
    async def act(scene: Scene) -> None:
        await scene.stop_operator()
        demo = await scene.submitted(job().worker(1))
        watching = asyncio.create_task(print_states(demo))
        await asyncio.sleep(600)
        scene.start_operator()
        scene.hold("demo-worker-0")
        await demo.wait("running", timeout_seconds=60)
        scene.let_go("demo-worker-0")
        await watching

    play(act)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "operator" in line]
    assert line == (
        "demo: no operator has looked at the job in 31s; check that the operator runs: "
        "kubectl get pods -A -l app.kubernetes.io/name=paddlejob"
    )


def test_a_job_with_an_operator_is_not_reported(capsys):
    async def act(scene: Scene) -> None:
        scene.hold("demo-worker-0")
        demo = await scene.submitted(job().worker(1))
        watching = asyncio.create_task(print_states(demo))
        await asyncio.sleep(120)
        scene.let_go("demo-worker-0")
        await watching

    play(act)
    assert "operator" not in capsys.readouterr().err
