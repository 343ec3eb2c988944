"""A job that crashes at the same step again and again, as an operator sees it that reads its log."""

from __future__ import annotations

import asyncio

from paddlejob.testing.build import job
from tests.operator.progress_stage import Read, play


async def crash(stage: Read, attempt: int, *steps: int) -> None:
    """Let an attempt make steps and abort."""
    stage.hold("demo-worker-0", 134)

    async def has_begun() -> bool:
        status = await stage.status()
        return status.get("attempt", 0) == attempt and status.get("phase") == "Running"

    await stage.until(has_begun, f"attempt {attempt} runs")
    for step in steps:
        stage.write("demo-worker-0", f"epoch 1 step {step}/62 loss 0.5")
        await asyncio.sleep(40)
    stage.let_go("demo-worker-0")


def test_it_is_ended_with_the_reason_and_was_restarted_while_it_got_further():
    async def act(stage: Read) -> None:
        policy = {"noProgressLimit": 2, "delaySeconds": 1}
        await stage.submit(job().worker(1).spec(backoffLimit=1, restartPolicy=policy))
        for attempt, steps in enumerate(((10,), (5, 20), (10, 30), (30,), (25, 30))):
            await crash(stage, attempt, *steps)
        status = await stage.phase("Failed")
        assert (status["reason"], status["attempt"], status["restarts"]) == ("NoProgress", 4, 4)
        spent = status["goodput"]
        # Attempts 1 and 2 got further after 40 seconds and took 40 more; 3 and 4 never did.
        assert 60 <= spent["repeatingSeconds"] - 120 <= 130
        assert 80 <= spent["trainingSeconds"] <= 200
        assert status["message"].endswith(
            "no progress beyond epoch 1 step 30 in 2 restarts (noProgressLimit 2)"
        )

    play(act)
