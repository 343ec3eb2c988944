"""The ends of logs in the records of jobs: how they are read, and what stands in for them."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.operator.history import LOG_SECONDS, MAX_LOGS
from paddlejob.operator.reports.pod_log import REFUSALS, REFUSED_SECONDS
from simkube.build import job
from simkube.kubelet.outcomes import Exit
from tests.operator.history_stage import Kept, play
from tests.operator.log_transport import Refused


@pytest.mark.parametrize("code", [403, 500])
def test_without_logs_the_termination_message_stands_in(code):
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 1, message="ValueError: no data")
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.write("demo-worker-0", "never seen")
        stage.logs.code = code
        stage.let_go("demo-worker-0")
        record = await stage.recorded("Failed")
        assert (record.attempts[0].ranks[0].text, record.attempts[0].ranks[0].from_log) == (
            "ValueError: no data",
            False,
        )

    play(act)


def test_logs_that_were_forbidden_are_read_again_after_some_minutes():
    async def act(stage: Kept) -> None:
        await stage.stop_operator()
        stage.reads_progress = False
        stage.start_operator()
        names = [f"job-{number}" for number in range(REFUSALS + 2)]
        for name in names:
            stage.hold(f"{name}-worker-0", 1)
            await stage.submit(job(name).worker(1))
            await stage.phase("Running", name)
            stage.write(f"{name}-worker-0", "the end")
        stage.logs.code = 403
        *early, last = names
        for name in early:
            stage.let_go(f"{name}-worker-0")
            assert not (await stage.recorded("Failed", name)).attempts[0].ranks[0].from_log
        assert stage.logs.asked == REFUSALS
        stage.logs.code = 200
        await asyncio.sleep(REFUSED_SECONDS)
        stage.let_go(f"{last}-worker-0")
        assert (await stage.recorded("Failed", last)).attempts[0].ranks[0].text == "the end"

    play(act)


def test_the_last_line_is_recorded_however_long_the_lines_are():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 1)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.write("demo-worker-0", *("=" * 16000 for _ in range(200)), "ValueError: no data")
        stage.let_go("demo-worker-0")
        record = await stage.recorded("Failed")
        assert record.attempts[0].ranks[0].text.endswith("=\nValueError: no data")

    play(act)


def test_a_log_that_does_not_come_holds_nothing_up():
    class Silent(Refused):
        async def chunks(self):
            await asyncio.sleep(3600)
            yield b""

    async def act(stage: Kept) -> None:
        stage.fates.set("demo-worker-0", Exit(137, 1))
        transport = stage.logs._transport

        def stream(path: str, **options):
            return nullcontext(Silent(200)) if path.endswith("/log") else transport.stream(path, **options)

        stage.logs.stream = stream
        await stage.submit(job().worker(1))
        # Its progress and its last lines are waited for, so that it runs again before it is recorded.
        record = await stage.recorded("Running")
        assert record.attempts[0].ranks[0].exit_code == 137
        status = await stage.status()
        assert (status["phase"], status["attempt"]) == ("Running", 1)

    play(act)


def test_many_jobs_that_fail_together_cost_few_log_reads_and_all_are_recorded():
    async def act(stage: Kept) -> None:
        names = [f"job-{number}" for number in range(40)]
        await stage.stop_operator()
        stage.reads_progress = False
        stage.start_operator()
        for name in names:
            stage.hold(f"{name}-worker-0", 1, message=f"boom of {name}")
            await stage.submit(job(name).worker(1))
        for name in names:
            await stage.phase("Running", name)
        for name in names:
            stage.let_go(f"{name}-worker-0")
        for name in names:
            await stage.phase("Failed", name)
        assert MAX_LOGS // 2 <= stage.logs.asked < MAX_LOGS // 2 + 10
        for name in names:
            assert (await stage.recorded("Failed", name)).summary.message.endswith(f"boom of {name}")

    play(act)


def test_a_job_that_is_deleted_while_its_logs_are_read_is_recorded_with_its_end():
    class Slow(Refused):
        async def chunks(self):
            await asyncio.sleep(LOG_SECONDS - 0.5)
            yield b"the end\n"

    async def act(stage: Kept) -> None:
        transport = stage.logs._transport

        def stream(path: str, **options):
            return nullcontext(Slow(200)) if path.endswith("/log") else transport.stream(path, **options)

        stage.logs.stream = stream
        stage.hold("demo-worker-0", 1)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.let_go("demo-worker-0")
        await stage.phase("Failed")
        await stage.client.delete(PADDLE_JOBS, "default", "demo")
        keeper = stage.running.controller.history
        while list(stage.running.controller.state.jobs):
            await asyncio.sleep(0.01)
        keeper._update_tracks()
        record = await stage.recorded("Failed")
        assert [each.result for each in record.attempts] == ["Failed"]
        assert record.attempts[0].ranks[0].text == "the end"

    play(act)
