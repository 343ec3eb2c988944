"""When progress is written to a job's status, and who is believed: reports, programs or logs."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.transport import Response
from paddlejob.operator.progress import READ_SECONDS
from paddlejob.operator.reports.writer import WRITE_SECONDS
from simkube.build import job
from simkube.kubelet.outcomes import Exit
from tests.operator.log_transport import Logs
from tests.operator.progress_stage import Read, line, play


def test_a_job_writes_at_most_so_often_and_nothing_that_it_has_said():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        await asyncio.sleep(60)
        before = stage.writes()
        for step in range(60):
            stage.write("demo-worker-0", line(step))
            await asyncio.sleep(1)
        assert 60 / WRITE_SECONDS / 2 < stage.writes() - before <= 60 / WRITE_SECONDS + 1
        silent = stage.writes()
        await asyncio.sleep(600)
        assert stage.writes() - silent <= 2
        assert "eta" not in await stage.progress(), "one write for the silence"

    play(act)


def _is_progress(options: dict) -> bool:
    """Return whether a request writes progress only; the end of a job changes its progress too."""
    body = options.get("body") or b""
    return b'"progress"' in body and b'"phase"' not in body


class FailsToWrite(Logs):
    """A transport to a server that does not take progress."""

    failing = 0

    async def request(self, method: str, path: str, **options):
        if self.failing and method == "PATCH" and _is_progress(options):
            body = {"kind": "Status", "code": self.failing, "reason": "", "message": "no"}
            return Response(self.failing, msgspec.json.encode(body), {})
        return await self._transport.request(method, path, **options)


@pytest.mark.parametrize(("code", "is_written"), [(409, True), (500, True), (422, False)])
def test_the_last_progress_is_written_when_the_server_takes_it_again(code, is_written):
    async def act(stage: Read) -> None:
        stage.operator_client._transport = fails = FailsToWrite(stage.logs)
        stage.fates.set("demo-worker-0", Exit(0, 30.0))
        await stage.submit(job().worker(1).spec(cleanPodPolicy="Never"))
        await stage.phase("Running")
        stage.write("demo-worker-0", line(1))
        await stage.reaches(1)
        fails.failing = code
        await stage.phase("Completed")
        stage.write("demo-worker-0", line(500))
        await asyncio.sleep(120)
        fails.failing = 0
        await asyncio.sleep(2 * WRITE_SECONDS)
        assert (await stage.progress())["step"] == (500 if is_written else 1)

    play(act)


class SlowToFail(FailsToWrite):
    """A transport on which writes of progress fail after a while."""

    async def request(self, method: str, path: str, **options):
        if self.failing and method == "PATCH" and _is_progress(options):
            await asyncio.sleep(20)
        return await super().request(method, path, **options)


def test_a_write_that_fails_after_its_job_is_gone_ends_no_other():
    async def act(stage: Read) -> None:
        stage.operator_client._transport = fails = SlowToFail(stage.logs)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        fails.failing = 500
        stage.report(1)
        await asyncio.sleep(1)
        await stage.client.delete(PADDLE_JOBS, "default", "demo")
        await asyncio.sleep(5)
        await stage.submit(job("other").worker(1))
        await stage.phase("Running", "other")
        stage.write("other-worker-0", line(7))
        await asyncio.sleep(30)
        fails.failing = 0
        await stage.reaches(7, "other")

    play(act)


def test_progress_that_meets_another_write_does_not_wait_for_its_next_turn():
    async def act(stage: Read) -> None:
        stage.operator_client._transport = fails = FailsToWrite(stage.logs)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        fails.failing = 409
        stage.report(1, phase="training")
        await asyncio.sleep(0.5)
        fails.failing = 0
        await asyncio.sleep(2)
        assert (await stage.progress())["step"] == 1

    play(act)


def test_the_first_report_is_written_immediately_during_a_write_from_the_log():
    class Slow(Logs):
        async def request(self, method: str, path: str, **options):
            if method == "PATCH" and b'"progress"' in (options.get("body") or b""):
                await asyncio.sleep(2)
            return await self._transport.request(method, path, **options)

    async def act(stage: Read) -> None:
        stage.operator_client._transport = Slow(stage.logs)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.write("demo-worker-0", line(1))
        await asyncio.sleep(READ_SECONDS + 2)
        stage.report(2, phase="training")
        await asyncio.sleep(5)
        assert (await stage.progress()).get("phase") == "training"

    play(act)


def test_the_first_report_is_written_immediately_after_a_write_from_the_log():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.write("demo-worker-0", line(1))
        await stage.reaches(1)
        stage.report(2, phase="training")
        await asyncio.sleep(1)
        assert (await stage.progress()).get("phase") == "training"
        stage.report(3, phase="training")
        await asyncio.sleep(5)
        assert (await stage.progress())["step"] == 2

    play(act)


# --- reports of recorders, beside logs


def test_a_remaining_time_from_the_log_is_written_immediately():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.report(1, phase="training", loss="0.7")
        await stage.reaches(1)
        before = stage.writes()
        for step in range(1, 60):
            stage.report(step, phase="training", loss="0.6")
            stage.write("demo-worker-0", f"step {step}/500 loss 0.6")
            await asyncio.sleep(1)
            if step == READ_SECONDS + 2:
                assert (await stage.progress())["eta"]
        assert stage.writes() - before <= 60 / WRITE_SECONDS + 1, "once"

    play(act)


def test_reports_take_precedence_and_logs_fill_in_missing_fields():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.write("demo-worker-0", line(10))
        await stage.reaches(10)
        stage.report(12, loss="0.4", phase="training")
        told = await stage.reaches(12)
        assert (told["loss"], told["percent"], told["eta"]) == ("0.4", 1, "60m")
        assert (told["throughput"], told["phase"]) == ("12.5 samples/s", "training")
        stage.write("demo-worker-0", line(20, loss=9.9))
        await asyncio.sleep(2 * WRITE_SECONDS)
        assert ((await stage.progress())["step"], (await stage.progress())["loss"]) == (12, "0.4")

    play(act)


def test_reports_get_no_total_from_a_log_that_counts_within_epochs():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        for epoch, step in ((1, 62), (2, 20), (2, 40)):
            stage.write("demo-worker-0", f"epoch {epoch} step {step}/62 loss 0.5")
            stage.report(62 * (epoch - 1) + step, epoch=epoch, phase="training")
            await asyncio.sleep(WRITE_SECONDS + 1)
        told = await stage.reaches(102)
        assert not any(told.get(name) for name in ("percent", "eta", "steps"))

    play(act)


def test_logs_are_not_read_while_reports_are_complete():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.report(12, steps=100, percent=12)
        await stage.reaches(12)
        read = stage.logs.asked
        await asyncio.sleep(10 * READ_SECONDS)
        assert stage.logs.asked == read

    play(act)


# --- what programs say themselves, in Kubeflow's protocol


def test_a_program_is_believed_how_much_is_done_and_left_and_the_recorder_the_rest():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.report(12, loss="0.4", phase="training")
        stage.say(percent=45, eta="3m", loss="9.9", epoch=2)
        told = await stage.reaches(12)
        assert (told["percent"], told["eta"], told["loss"], told["epoch"]) == (45, "3m", "0.4", 2)

    play(act)


def test_a_program_that_nothing_else_is_known_of_is_believed_everything():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        for percent, loss in ((10, "0.9"), (20, "0.8")):
            stage.say(percent=percent, loss=loss)

            async def is_told(expected: tuple[int, str] = (percent, loss)) -> bool:
                told = await stage.progress()
                return (told.get("percent"), told.get("loss")) == expected

            await stage.until(is_told, f"the job is at {percent} %")
        stage.say(step=30)
        assert (await stage.reaches(30))["step"] == 30

    play(act)


def test_an_update_from_before_a_restart_is_ignored_after_it():
    async def act(stage: Read) -> None:
        stage.fates.set("demo-worker-0", Exit(137, after_seconds=50))
        await stage.submit(job().worker(1).spec(restartPolicy={"delaySeconds": 0}))
        await stage.phase("Running")
        stage.report(100)
        stage.say(percent=90)
        await stage.reaches(100)
        await stage.phase("Restarting")
        await stage.phase("Running")
        stage.report(120)
        assert "percent" not in await stage.reaches(120)

    play(act)


def test_steps_that_a_restart_repeats_are_lost_and_the_furthest_stays():
    async def act(stage: Read) -> None:
        stage.fates.set("demo-worker-0", Exit(137, after_seconds=50))
        await stage.submit(job().worker(1).spec(restartPolicy={"delaySeconds": 0}))
        await stage.phase("Running")
        stage.report(150, saved_step=150)
        await stage.reaches(150)
        # Not written before the pod fails, and counted all the same.
        stage.report(180, saved_step=150)
        await stage.phase("Restarting")
        await stage.phase("Running")
        stage.report(5, resumed=True)

        async def is_lost() -> bool:
            return (await stage.progress()).get("lostSteps") == 30

        await stage.until(is_lost, "the lost steps are counted")
        told = await stage.progress()
        assert (told["step"], told["attemptStep"], told["resumedStep"]) == (180, 155, 150)
        assert told["attempt"] == 1
        stage.report(60, resumed=True)
        assert (await stage.reaches(210))["lostSteps"] == 30
        assert "attemptStep" not in await stage.progress()

    play(act)


def test_a_job_of_the_same_name_begins_with_nothing():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.report(150)
        await stage.reaches(150)
        await stage.client.delete(PADDLE_JOBS, stage.namespace, "demo")
        await stage.gone()
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.report(1)
        assert "lostSteps" not in await stage.reaches(1)

    play(act)
