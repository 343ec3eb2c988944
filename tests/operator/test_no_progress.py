"""Jobs that crash again and again, as an operator sees them that knows their steps: stuck or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from paddlejob.operator.progress import CATCH_UP_SECONDS
from paddlejob.operator.reports.writer import WRITE_SECONDS
from simkube.build import job
from tests.operator.progress_stage import Read, play


async def run(stage: Read, attempt: int) -> None:
    """Wait until an attempt runs, which aborts when it is let go."""
    stage.hold("demo-worker-0", 134)

    async def has_begun() -> bool:
        status = await stage.status()
        return status.get("attempt", 0) == attempt and status.get("phase") == "Running"

    await stage.until(has_begun, f"attempt {attempt} runs")


async def crash(stage: Read, attempt: int, *steps: int) -> None:
    """Let an attempt make steps and abort."""
    await run(stage, attempt)
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


def _logged(stage: Read, step: int) -> None:
    stage.write("demo-worker-0", f"epoch 1 step {step}/9000 loss 0.5")


def _reported(stage: Read, step: int) -> None:
    stage.report(step, phase="training", is_counted=False)


@pytest.mark.parametrize("make_step", [_logged, _reported])
def test_a_job_that_gains_steps_in_every_attempt_is_restarted_without_end(
    make_step: Callable[[Read, int], None],
) -> None:
    """Each attempt crashes before its last steps are written to the status."""

    async def act(stage: Read) -> None:
        policy = {"noProgressLimit": 3, "delaySeconds": 0, "maxDelaySeconds": 0}
        await stage.submit(job().worker(1).spec(restartPolicy=policy))
        for attempt in range(5):
            await run(stage, attempt)
            reached = 870 + 30 * attempt
            make_step(stage, reached - 40 if attempt else 1)
            await asyncio.sleep(WRITE_SECONDS + 4)
            # The first of these is written at once after a pause, the second is due 15 seconds later.
            make_step(stage, reached - 35 if attempt else 2)
            await asyncio.sleep(5)
            make_step(stage, reached)
            stage.let_go("demo-worker-0")
        await run(stage, 5)
        status = await stage.status()
        assert status["progressMark"]["step"] == 870 + 30 * 4
        assert status.get("restartsWithoutProgress", 0) == 0
        assert status["progress"]["step"] == 870 + 30 * 4

    play(act)


def test_steps_that_are_known_after_the_end_of_their_attempt_are_repeated_by_the_next():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1).spec(restartPolicy={"delaySeconds": 0, "maxDelaySeconds": 0}))
        await run(stage, 0)
        for step in (10, 20):
            _reported(stage, step)
            await asyncio.sleep(WRITE_SECONDS + 1)
        state = stage.running.controller.state
        stage.let_go("demo-worker-0")
        [last] = state.pods
        await run(stage, 1)
        stage.report(400, phase="training", is_counted=False, pod=last)
        await asyncio.sleep(WRITE_SECONDS + 1)
        before = (await stage.status())["goodput"]
        for step in range(10, 310, 10):
            _reported(stage, step)
            await asyncio.sleep(10)
        status = await stage.status()
        assert status["progressMark"]["step"] == 400
        assert (status["progress"]["attempt"], status["progress"]["step"]) == (1, 400)
        stage.let_go("demo-worker-0")
        await run(stage, 2)
        after = (await stage.status())["goodput"]
        assert after.get("repeatingSeconds", 0) - before.get("repeatingSeconds", 0) >= 300

    play(act)


def test_a_log_that_is_not_answered_delays_a_restart_by_seconds_only():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1).spec(restartPolicy={"delaySeconds": 0}))
        await run(stage, 0)
        stage.logs.hangs = True
        stage.let_go("demo-worker-0")
        began = asyncio.get_running_loop().time()
        await run(stage, 1)
        assert CATCH_UP_SECONDS <= asyncio.get_running_loop().time() - began < 3 * CATCH_UP_SECONDS

    play(act)
