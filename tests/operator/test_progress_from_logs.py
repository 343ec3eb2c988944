"""How far a job is, read from its log by an operator on an in-memory API server."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

from paddlejob.api.meta import ObjectMeta
from paddlejob.api.pod import Pod
from paddlejob.kube.errors import TransportTimeoutError
from paddlejob.kube.resource import EVENTS, PODS
from paddlejob.operator.progress import MAX_READS, READ_SECONDS, SLOT_SECONDS
from paddlejob.operator.reports.pod_log import (
    MAX_BYTES,
    READ_TIMEOUT_SECONDS,
    REFUSALS,
    REFUSED_SECONDS,
    SILENCE_BACKOFF,
    LogReader,
)
from paddlejob.training.log_lines import Tracker, training_progress
from simkube.build import job
from simkube.kubelet.outcomes import Exit
from tests.operator.log_transport import Refused
from tests.operator.progress_stage import Read, line, play


def test_a_running_job_shows_its_step_loss_and_eta():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(2))
        await stage.phase("Running")
        stage.write("demo-worker-0", "loading data", line(10))
        told = await stage.reaches(10)
        assert told.pop("updated")
        assert told == {
            "step": 10,
            "steps": 1000,
            "epoch": 1,
            "epochs": 2,
            "epochStep": 10,
            "percent": 1,
            "loss": "0.5",
            "throughput": "12.5 samples/s",
            "eta": "60m",
        }

    play(act)


def test_a_loss_that_is_not_finite_is_shown_as_such():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.write("demo-worker-0", line(10, loss=float("nan")))
        assert (await stage.reaches(10))["loss"] == "nan"

    play(act)


def test_the_last_progress_is_kept_when_the_job_ends():
    async def act(stage: Read) -> None:
        stage.fates.set("demo-worker-0", Exit(0, 30.0))
        await stage.submit(job().worker(1).spec(cleanPodPolicy="Never"))
        await stage.phase("Running")
        stage.write("demo-worker-0", line(1))
        await stage.reaches(1)
        await stage.phase("Completed")
        stage.write("demo-worker-0", line(500))
        told = await stage.reaches(500)
        assert (told["percent"], told.get("eta")) == (100, None)

    play(act)


def test_many_jobs_cost_a_bounded_number_of_requests():
    async def act(stage: Read) -> None:
        for number in range(60):
            await stage.submit(job(f"job-{number}").worker(1))
        await asyncio.sleep(30)
        asked = stage.logs.asked
        await asyncio.sleep(60)
        reads = 60 * ((MAX_READS + 1) // 2) / SLOT_SECONDS
        assert reads / 2 < stage.logs.asked - asked <= reads + MAX_READS

    play(act)


@pytest.mark.parametrize(("code", "goes_on"), [(400, True), (500, True), (403, False)])
def test_an_error_costs_one_read_unless_logs_may_not_be_read_at_all(code, goes_on):
    async def act(stage: Read) -> None:
        stage.logs.code = code
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        await asyncio.sleep(4 * READ_SECONDS)
        assert stage.logs.asked > 1 if goes_on else stage.logs.asked == 1
        stage.logs.code = 200
        stage.write("demo-worker-0", line(10))
        await asyncio.sleep(4 * READ_SECONDS)
        assert bool(await stage.progress()) is goes_on
        await asyncio.sleep(REFUSED_SECONDS)
        assert await stage.progress()

    play(act)


def test_a_log_that_is_forbidden_stops_the_reading_of_no_other():
    async def act(stage: Read) -> None:
        stage.logs.code, stage.logs.refused = 403, "/job-0-"
        for number in range(2):
            await stage.submit(job(f"job-{number}").worker(1))
            await stage.phase("Running", f"job-{number}")
            stage.write(f"job-{number}-worker-0", line(10))
        await stage.reaches(10, "job-1")
        await asyncio.sleep(60)
        stage.write("job-1-worker-0", line(20))
        await stage.reaches(20, "job-1")
        assert not await stage.progress("job-0")

    play(act)


def test_logs_that_are_all_forbidden_are_seldom_asked_for():
    async def act(stage: Read) -> None:
        stage.logs.code = 403
        for number in range(20):
            await stage.submit(job(f"job-{number}").worker(1))
        await asyncio.sleep(REFUSED_SECONDS - 60)
        assert stage.logs.asked == REFUSALS
        await asyncio.sleep(REFUSED_SECONDS)
        assert REFUSALS < stage.logs.asked <= REFUSALS + 2
        stage.logs.code = 200
        for number in range(20):
            stage.write(f"job-{number}-worker-0", line(10))
        await asyncio.sleep(REFUSED_SECONDS)
        assert [(await stage.progress(f"job-{number}")).get("step") for number in range(20)] == [10] * 20

    play(act)


def test_the_newest_line_counts_however_long_the_lines_are():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        for step in range(1, 61):
            stage.write("demo-worker-0", "=" * 16000, line(step))
        await stage.reaches(60)

    play(act)


def test_a_log_without_end_is_read_no_further_than_needed():
    class Endless(Refused):
        sent = 0

        async def chunks(self):
            while True:
                self.sent += 1
                yield f"{self.sent:>1023}\n".encode()

    async def act(stage: Read) -> None:
        endless = Endless(200)
        stage.logs.stream = lambda *_, **__: nullcontext(endless)
        pod = Pod(ObjectMeta("x", "default"))
        text = await LogReader(stage.operator_client).read_end(pod, "", lines=9, keep_bytes=2048)
        assert endless.sent == MAX_BYTES // 1024
        assert text.split() == [str(endless.sent - 1), str(endless.sent)]

    play(act)


def test_a_silent_node_is_asked_more_and_more_seldom_until_it_answers():
    async def act(stage: Read) -> None:
        stage.server.tenant_faults.silent_nodes.add("silent")
        for number in range(3):
            await stage.submit(job(f"job-{number}").worker(1, pod={"nodeName": "silent"}))
            await stage.phase("Running", f"job-{number}")
            stage.write(f"job-{number}-worker-0", line(10))
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        # The first reads of all three were under way together; then 10, 20, 40, 80, 160 and 300 s pass.
        asked = stage.logs.asked_for("job-")
        await asyncio.sleep(600)
        assert asked <= stage.logs.asked_for("job-") <= 3 * 7
        stage.write("demo-worker-0", line(20))
        await stage.reaches(20)
        stage.server.tenant_faults.silent_nodes.clear()
        await asyncio.sleep(SILENCE_BACKOFF.max_seconds)
        assert [(await stage.progress(f"job-{number}")).get("step") for number in range(3)] == [10] * 3

    play(act)


def test_a_log_that_trickles_in_is_given_up_after_seconds():
    class Trickling(Refused):
        async def chunks(self):
            while True:
                await asyncio.sleep(1)
                yield b"."

    async def act(stage: Read) -> None:
        stage.logs.stream = lambda *_, **__: nullcontext(Trickling(200))
        clock = asyncio.get_running_loop().time
        began, pod = clock(), Pod(ObjectMeta("x", "default"))
        with pytest.raises(TransportTimeoutError, match="no log of pod x"):
            await LogReader(stage.operator_client).read_end(pod, "", lines=9, keep_bytes=2048)
        assert clock() - began == READ_TIMEOUT_SECONDS

    play(act)


def test_finished_jobs_whose_pods_are_gone_do_not_slow_down_the_others():
    async def act(stage: Read) -> None:
        finished = [f"job-{number}" for number in range(30)]
        for name in finished:
            stage.hold(f"{name}-worker-0", 0)
            await stage.submit(job(name).worker(1))
        for name in finished:
            await stage.phase("Running", name)
            stage.write(f"{name}-worker-0", line(1))
            await stage.reaches(1, name)
        # The pods of these go as soon as they end, mostly before their logs are read again.
        for name in finished:
            stage.let_go(f"{name}-worker-0")
        for name in finished:
            await stage.phase("Completed", name)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        await asyncio.sleep(60)
        asked = stage.logs.asked
        await asyncio.sleep(60)
        assert 60 / (READ_SECONDS + 1) - 1 <= stage.logs.asked - asked <= 60 / READ_SECONDS + 1

    play(act)


NO_CUDA = "ValueError: The device should not be 'gpu', since PaddlePaddle is not compiled with CUDA"


def test_idle_gpus_of_a_running_job_are_reported_once():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1, resources={"limits": {"nvidia.com/gpu": 1}}))
        await stage.phase("Running")
        stage.write("demo-worker-0", NO_CUDA, line(10))
        sentence = "worker-0 holds 1 x nvidia.com/gpu, but its Paddle was built for the CPU only"

        async def is_told() -> bool:
            return sentence in (await stage.status())["message"]

        await stage.until(is_told, "the status says it")
        await asyncio.sleep(10 * READ_SECONDS)
        events = await stage.client.list(EVENTS, stage.namespace, type=dict)
        [event] = [event for event in events.items if event["reason"] == "IdleAccelerators"]
        assert (event["type"], event.get("count", 1)) == ("Warning", 1)
        assert event["message"].startswith(sentence)
        # The next pod may have another image.
        await stage.client.delete(PODS, stage.namespace, "demo-worker-0")
        await stage.phase("Restarting")
        await stage.phase("Running")
        assert not await is_told()

    play(act)


@pytest.mark.parametrize("step", range(101))
def test_the_percentage_is_rounded_and_below_100_until_the_end(step):
    tracker = Tracker()
    tracker.feed(f"step {step}/100 loss 0.5", 0.0)
    assert training_progress(tracker, 0.0).percent == min(99, step)


def test_a_program_without_output_gets_no_progress():
    assert training_progress(Tracker(), 0.0) is None
