"""How far a job is, read from its log by an operator on an in-memory API server."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import msgspec
import pytest
import yaml

from paddlejob.api.meta import ObjectKey
from paddlejob.api.v1 import TrainingProgress
from paddlejob.core.recording.hangs import HangLimits
from paddlejob.core.recording.progress import Origin
from paddlejob.kube.client import Client
from paddlejob.kube.resource import EVENTS, PODS
from paddlejob.kube.transport import Response
from paddlejob.operator.pod_log import MOST_BYTES, REFUSALS, REFUSED_SECONDS, LogReader
from paddlejob.operator.progress import (
    READ_SECONDS,
    READS_PER_SECOND,
    progress_of,
)
from paddlejob.operator.reports.book import SILENT_SECONDS, Book, Report
from paddlejob.operator.reports.watchdog import Watchdog
from paddlejob.operator.reports.writer import WRITE_SECONDS
from paddlejob.operator.resources import PADDLE_JOBS
from paddlejob.progress import Tracker
from paddlejob.testing import virtual_loop
from paddlejob.testing.apiserver.fake_api import ApiServer
from paddlejob.testing.build import job
from paddlejob.testing.kubelet.outcomes import Exit
from paddlejob.testing.operator import Operator
from tests.client.scene import CRD, Scene


class Logs:
    """A transport that counts the logs that are read, and may refuse them."""

    def __init__(self, transport) -> None:
        self._transport = transport
        self.asked = 0
        self.code = 200
        self.refused = ""
        """Only the logs of pods of this job are answered so, if it is given."""

    def __getattr__(self, name: str):
        return getattr(self._transport, name)

    def stream(self, path: str, **options):
        is_log = path.endswith("/log")
        self.asked += is_log
        return (
            nullcontext(Refused(self.code))
            if is_log and self.code != 200 and self.refused in path
            else self._transport.stream(path, **options)
        )


class Refused:
    """What a server answers that does not give a log."""

    headers: dict[str, str] = {}

    def __init__(self, code: int) -> None:
        self.status = code

    async def chunks(self):
        yield b"no"


class Read(Scene):
    """An operator that also reads progress, as the process does."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.logs = Logs(server.transport("operator"))
        self.operator_client = Client(self.logs)

    def operator(self) -> Operator:
        self.running = Operator(self.operator_client, rng=self.rng, reads_progress=True)
        return self.running

    def report(self, step: int, *, resumed: bool = False, **more) -> None:
        """Let worker 0 report, as it does after it has proved who it is."""
        state = self.running.controller.state
        [job] = state.jobs
        pod = state.pods.get(ObjectKey(job.metadata.namespace, "demo-worker-0"))
        told = TrainingProgress(step=step, **more)
        self.running.progress.writer.report(job, pod, told, Origin(resumed=resumed))

    def say(self, **told) -> None:
        """Let the program of worker 0 say how far it is."""
        state = self.running.controller.state
        [job] = state.jobs
        pod = state.pods.get(ObjectKey(job.metadata.namespace, "demo-worker-0"))
        self.running.progress.writer.say(job, pod, TrainingProgress(**told))

    async def progress(self, name: str = "demo") -> dict:
        return (await self.status(name)).get("progress") or {}

    async def reaches(self, step: int, name: str = "demo") -> dict:
        async def is_there() -> bool:
            return (await self.progress(name)).get("step") == step

        await self.until(is_there, f"{name} is at step {step}")
        return await self.progress(name)

    def writes(self) -> int:
        return len(list(self.server.log.select(verb="patch", resource="paddlejobs")))


def play(act) -> None:
    async def main() -> None:
        server = ApiServer(garbage_delay_seconds=(0.0, 0.1))
        server.install(yaml.safe_load(CRD.read_text()))
        await Read(server).play(act)

    virtual_loop.run(main(), seed=1)


def line(step: int, *, loss: float = 0.5) -> str:
    return f"[Train][Epoch 1/2][Iter: {step}/500]lr: 0.1, loss: {loss}, ips: 12.5 samples/s, eta: 1:00:00"


def test_a_running_job_tells_its_step_loss_and_eta():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(2))
        await stage.phase("Running")
        stage.write("demo-worker-0", "loading data", line(10))
        told = await stage.reaches(10)
        assert told.pop("updated")
        assert told == {
            "step": 10,
            "steps": 500,
            "epoch": 1,
            "epochs": 2,
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
        assert stage.writes() - silent <= 1

    play(act)


def test_what_was_said_last_is_kept_when_the_job_ends():
    async def act(stage: Read) -> None:
        stage.fates.set("demo-worker-0", Exit(0, 30.0))
        await stage.submit(job().worker(1).spec(cleanPodPolicy="Never"))
        await stage.phase("Running")
        stage.write("demo-worker-0", line(1))
        await stage.reaches(1)
        await stage.phase("Completed")
        stage.write("demo-worker-0", line(500))
        assert (await stage.reaches(500))["percent"] == 50

    play(act)


def test_many_jobs_cost_a_bounded_number_of_requests():
    async def act(stage: Read) -> None:
        for number in range(60):
            await stage.submit(job(f"job-{number}").worker(1))
        await asyncio.sleep(30)
        asked = stage.logs.asked
        await asyncio.sleep(60)
        assert 60 * READS_PER_SECOND / 2 < stage.logs.asked - asked <= 60 * READS_PER_SECOND + 1

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
        text = await LogReader(stage.operator_client).read_end("default", "x", "", lines=9, keep_bytes=2048)
        assert endless.sent == MOST_BYTES // 1024
        assert text.split() == [str(endless.sent - 1), str(endless.sent)]

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


def test_a_running_job_is_told_once_that_its_paddle_cannot_use_the_gpus_of_its_pods():
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


def test_nothing_is_said_of_a_program_that_tells_nothing():
    assert progress_of(Tracker(), 0.0) is None


class FailsToWrite(Logs):
    """A transport to a server that does not take progress."""

    failing = 0

    async def request(self, method: str, path: str, **options):
        if self.failing and method == "PATCH" and b'"progress"' in (options.get("body") or b""):
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


def test_the_first_report_is_written_at_once_also_when_the_log_is_just_being_written():
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


# --- reports of recorders, beside logs


def test_a_remaining_time_that_only_the_log_tells_is_written_at_once():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.report(1, phase="training", loss="0.7")
        await stage.reaches(1)
        before = stage.writes()
        for step in range(1, 60):
            stage.report(step, phase="training", loss="0.6")
            stage.write("demo-worker-0", f"epoch 1 step {step}/500 loss 0.6")
            await asyncio.sleep(1)
            if step == READ_SECONDS + 2:
                assert (await stage.progress())["eta"]
        assert stage.writes() - before <= 60 / WRITE_SECONDS + 1, "once"

    play(act)


def test_reports_win_and_logs_fill_in_what_only_the_program_knows():
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


def test_logs_are_not_read_while_reports_tell_everything():
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


def test_what_a_program_said_before_a_restart_is_not_believed_after_it():
    async def act(stage: Read) -> None:
        stage.fates.set("demo-worker-0", Exit(137, after_seconds=60))
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
        stage.fates.set("demo-worker-0", Exit(137, after_seconds=60))
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


# --- ranks that make no progress

LIMITS = HangLimits(floor_seconds=60, ceiling_seconds=600)
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
STACK = 'Thread 0x0 (most recent call first):\n  File "/app/train.py", line 60 in backward\n'


class Ranks:
    """What the ranks of a job report while a watchdog looks on."""

    def __init__(self, stage: Read) -> None:
        self.stage = stage
        self.controller = stage.running.controller
        self.book = Book()
        self.watchdog = Watchdog(
            self.controller.state, self.book, self.controller.record_event, LIMITS, straggler_seconds=60.0
        )
        self.asked: set[str] = set()

    async def report(self, step: int, *, silent: str = "", waiting: bool = True) -> None:
        clock = asyncio.get_running_loop().time()
        for pod in self.controller.state.pods:
            name = pod.metadata.name
            if name == silent:
                continue
            [job] = self.controller.state.jobs
            phase = "training" if step else "starting"
            report = Report(rank=int(name[-1]), step=step, phase=phase, waiting=waiting)
            self.book.take(job.metadata.key, pod, report, clock)
            if self.watchdog.wants_stacks(job.metadata.key):
                self.asked.add(name)
                where = msgspec.structs.replace(report, stacks=STACK)
                self.book.take(job.metadata.key, pod, where, clock)
        await asyncio.sleep(5)


def watched(act, **spec) -> None:
    async def main(stage: Read) -> None:
        await stage.submit(job().worker(3).spec(**spec))
        await stage.phase("Running")
        ranks = Ranks(stage)
        watching = asyncio.create_task(ranks.watchdog.run())
        try:
            for step in range(1, 10):
                await ranks.report(step)
            await act(stage, ranks)
        finally:
            watching.cancel()

    play(main)


def test_a_hang_is_told_with_the_rank_that_is_out_of_reach(caplog):
    async def act(stage: Read, ranks: Ranks) -> None:
        for _ in range(30):
            await ranks.report(9, silent="demo-worker-1")
        await stage.says("demo-worker-1 (rank 1)")
        assert "no step for" in (await stage.status())["message"]
        assert "Hung" in await stage.reasons()
        assert ranks.asked == {"demo-worker-0", "demo-worker-2"}
        assert f"stack of demo-worker-0 (rank 0), demo-worker-2 (rank 2):\n{STACK}" in caplog.text
        await ranks.report(10)
        await stage.says("3 workers running")
        for _ in range(5):
            await ranks.report(11)
        assert "no step" not in (await stage.status())["message"]

    watched(act)


def test_a_rank_that_is_out_of_reach_is_named_however_long_the_others_wait(monkeypatch):
    """Time-outs are longer than reports are remembered of ranks that nobody waits for."""

    async def act(stage: Read, ranks: Ranks) -> None:
        for _ in range(int(SILENT_SECONDS / 5) + 60):
            await ranks.report(9, silent="demo-worker-1")
        await stage.says("demo-worker-1 (rank 1)")

    monkeypatch.setitem(globals(), "LIMITS", HangLimits(floor_seconds=SILENT_SECONDS + 60))
    watched(act)


def test_a_job_whose_ranks_all_fall_silent_is_told_of_and_not_restarted():
    async def act(stage: Read, ranks: Ranks) -> None:
        await asyncio.sleep(1200)
        assert "Hung" in await stage.reasons()
        status = await stage.status()
        assert status["message"].endswith("all 3 ranks are stopped or cannot reach the operator")
        assert "no report for 85s" in status["message"]
        assert status.get("attempt", 0) == 0
        await ranks.report(10)
        await stage.says("3 workers running")

    watched(act, hangPolicy="Restart")


def test_a_job_that_is_heard_again_and_hangs_is_restarted():
    async def act(stage: Read, ranks: Ranks) -> None:
        await asyncio.sleep(1200)
        assert "no report" in (await stage.status())["message"]
        for _ in range(10):
            await ranks.report(9)
        assert len(ranks.asked) == 3
        assert (await stage.status())["lastFailure"]["message"].startswith(
            "no step for 20m (step 9): all 3 ranks"
        )

    watched(act, hangPolicy="Restart")


def test_ranks_that_wait_for_one_that_has_not_begun_name_it():
    async def act(stage: Read) -> None:
        await stage.submit(job().worker(3))
        await stage.phase("Running")
        ranks = Ranks(stage)
        watching = asyncio.create_task(ranks.watchdog.run())
        for _ in range(100):
            await ranks.report(0, silent="demo-worker-2")
        node = (await stage.pod("demo-worker-2"))["spec"]["nodeName"]
        await stage.says(f"demo-worker-2 on {node} has not started training")
        watching.cancel()

    play(act)


def test_the_first_report_is_written_at_once_also_when_the_log_has_just_told_something():
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


def test_a_job_that_hangs_is_restarted_once_where_it_asks_for_that():
    async def act(stage: Read, ranks: Ranks) -> None:
        for _ in range(30):
            await ranks.report(9, silent="demo-worker-1")
            if (await stage.status())["phase"] != "Running":
                break
        await stage.phase("Running")
        status = await stage.status()
        assert (status["attempt"], status["lastFailure"]["reason"]) == (1, "Hung")
        assert status["lastFailure"]["pod"] == "demo-worker-1"
        for step in range(1, 30):
            await ranks.report(step)
        assert (await stage.status())["attempt"] == 1

    watched(act, hangPolicy="Restart")


async def train_unevenly(ranks: Ranks, *, seconds: int, slow: str) -> None:
    """Let all ranks make four steps a second, one of them with more work of its own."""
    [found] = ranks.controller.state.jobs
    for number in range(seconds // 5):
        for pod in ranks.controller.state.pods:
            times = (4.0, 1.0) if pod.metadata.name == slow else (1.0, 4.0)
            report = Report(
                rank=int(pod.metadata.name[-1]),
                step=10 + 20 * number,
                phase="training",
                own_seconds=times[0] * number,
                waiting_seconds=times[1] * number,
            )
            ranks.book.take(found.metadata.key, pod, report, asyncio.get_running_loop().time())
        await asyncio.sleep(5)


async def stragglers_told(stage: Read) -> list[dict]:
    listed = await stage.client.list(EVENTS, stage.namespace, type=dict)
    return [each for each in listed.items if each["reason"] == "Straggler" and each["type"] == "Warning"]


def test_a_straggler_is_told_with_its_node_once_until_it_is_none():
    async def act(stage: Read, ranks: Ranks) -> None:
        await train_unevenly(ranks, seconds=200, slow="demo-worker-2")
        told = await stragglers_told(stage)
        assert [each.get("count", 1) for each in told] == [1]
        node = (await stage.pod("demo-worker-2"))["spec"]["nodeName"]
        assert told[0]["message"].startswith(f"demo-worker-2 (rank 2) on {node} computes for ")
        status = await stage.status()
        assert status["message"] == f"3 workers running; {told[0]['message']}"
        assert status.get("attempt", 0) == 0
        await train_unevenly(ranks, seconds=60, slow="")
        assert (await stage.status())["message"] == "3 workers running"

    watched(act)


def test_a_straggler_is_replaced_once_where_its_job_asks_for_that():
    async def act(stage: Read, ranks: Ranks) -> None:
        node = (await stage.pod("demo-worker-2"))["spec"]["nodeName"]
        await train_unevenly(ranks, seconds=120, slow="demo-worker-2")
        await stage.phase("Running")
        status = await stage.status()
        assert (status["attempt"], status["restarts"], status["suspectNodes"]) == (1, 1, [node])
        assert status["lastFailure"]["pod"] == "demo-worker-2"
        assert status["lastFailure"]["reason"] == "Straggler"
        [avoided] = (await stage.pod("demo-worker-2"))["spec"]["affinity"]["nodeAffinity"][PREFERRED]
        assert avoided["preference"]["matchFields"][0]["values"] == [node]
        # Slow again: then it is not for its node.
        await train_unevenly(ranks, seconds=200, slow="demo-worker-2")
        status = await stage.status()
        assert (status["phase"], status["attempt"]) == ("Running", 1)
        assert "demo-worker-2 (rank 2)" in status["message"]

    watched(act, stragglerPolicy="Replace")
