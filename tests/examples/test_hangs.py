"""Real ranks that stop, lock themselves up or are slow are named by an operator that they report to."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from devcluster import Cluster
from examples.conftest import RunningJob
from paddlejob.kube.client import Client
from paddlejob.kube.resource import EVENTS
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.training.hangs import HangLimits
from simkube.build import JobBuilder, job
from tests.apiserver import installed
from tests.support.reporting import Reporting
from tests.support.waiting import eventually_async

ROOT = Path(__file__).resolve().parents[2]
RESNET = str(ROOT / "examples" / "resnet" / "train_fleet.py")
WIDE_AND_DEEP = str(ROOT / "examples" / "wide_and_deep" / "train.py")
TROUBLED = str(ROOT / "tests" / "support" / "troubled.py")
LIMITS = HangLimits(floor_seconds=10, ceiling_seconds=10)
"""gloo ends a rank that has waited for 30 seconds, sooner than a learned time-out; reports and looks at them,
every 5 seconds each, take up to 20 of these."""
LEARNED = HangLimits(floor_seconds=10)
NORMAL_RUNS = 20
SLOW_SECONDS = 20
"""Longer than a step may take, and far less than an evaluation may."""
WORK, WITHIN_STEPS = 40, 30
"""What makes a throttled step take a second, so that reports and looks at them are a few steps apart."""
PATIENCE_SECONDS = 240.0
DUTY_SECONDS = (0.05, 0.15)
"""How long a throttled rank runs and then does not, in turn."""

pytestmark = [
    pytest.mark.paddle,
    pytest.mark.apiserver,
    pytest.mark.thorough,
    pytest.mark.timeout(900),
]


@pytest.fixture
def play(control_plane: Cluster, namespace: str, tmp_path: Path) -> Callable[..., Awaitable[None]]:
    installed.apply(control_plane, installed.CRD)

    async def play(act: Callable[[Reporting], Awaitable[None]], hangs: HangLimits = LIMITS) -> None:
        async with Client(HttpTransport(load_config(control_plane.kubeconfig))) as client:
            stage = Reporting(client, namespace, control_plane, tmp_path / "mounts")
            stage.hangs = hangs
            await stage.play(act)  # type: ignore[arg-type]

    return play


@pytest.fixture
def train(start_job, collective_python: str, digits: str):
    async def train(stage: Reporting, built: JobBuilder, program: str, **settings: object) -> RunningJob:
        """Let real processes be the two pods of a job, and wait until they train."""
        of_pods = await pods(stage, built)
        command = [collective_python, program]
        running = start_job(command, workers=2, of_pods=of_pods, DATA_DIR=digits, EPOCHS=1000, **settings)
        await until(stage, lambda step: step >= 5)
        return running

    return train


async def pods(stage: Reporting, built: JobBuilder) -> dict[str, dict[str, str]]:
    """Submit a job of two workers, and return the variables that they report with."""
    await stage.submit(built.worker(2).spec(recorder=True))
    await stage.phase("Running")
    of_pods = {}
    for worker in ("worker-0", "worker-1"):
        place = await stage.mount(f"demo-{worker}")
        env = await stage.environment(f"demo-{worker}", place)
        of_pods[worker] = {
            **{name: env[name] for name in ("PYTHONPATH", "PADDLEJOB_REPORT_URL")},
            "TROUBLE": str(place / "trouble"),
        }
    return of_pods


async def until(stage: Reporting, is_there: Callable[[int], bool]) -> int:
    """Wait for a step in the job's status, and return it."""

    async def reached() -> int:
        step = (await stage.progress()).get("step", 0)
        return step if is_there(step) else 0

    return await eventually_async(reached, within_seconds=PATIENCE_SECONDS, says=stage.status)


async def events(stage: Reporting, reason: str) -> list[str]:
    listed = await stage.client.list(EVENTS, stage.namespace, type=dict)
    return [each["message"] for each in listed.items if each["reason"] == reason]


async def told(stage: Reporting, reason: str) -> str:
    """Wait for an event, and return what it says."""
    found = await eventually_async(
        lambda: events(stage, reason), within_seconds=PATIENCE_SECONDS, says=stage.status
    )
    return found[0]


async def test_a_rank_of_the_example_that_is_stopped_is_named(play, train) -> None:
    async def act(stage: Reporting) -> None:
        running = await train(stage, job(), RESNET)
        running.workers[1].send(signal.SIGSTOP)
        message = await told(stage, "Hung")
        assert "demo-worker-1 (rank 1) on " in message
        assert message.endswith(" is not reporting")
        await stage.says(message)
        running.workers[1].send(signal.SIGCONT)
        before = (await stage.progress())["step"]
        await until(stage, lambda step: step > before)
        await stage.says("2 workers running")

    await play(act)


async def test_a_slow_rank_and_a_deadlock_are_named_and_slow_evaluations_are_not(
    play, train, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(stage: Reporting) -> None:
        running = await train(
            stage, job().spec(hangPolicy="Restart"), TROUBLED, SLOW_SECONDS=SLOW_SECONDS, WORK=WORK
        )
        await until(stage, lambda step: step > 40)
        assert not await events(stage, "Hung")
        assert not await events(stage, "Straggler")

        first = len(running.workers[0].lines)
        throttling = asyncio.create_task(throttle(running))
        message = await told(stage, "Straggler")
        steps = len(running.workers[0].lines) - first
        throttling.cancel()
        running.workers[1].send(signal.SIGCONT)
        assert message.startswith("demo-worker-1 (rank 1) on ")
        assert steps <= WITHIN_STEPS

        (stage.directory / "demo-worker-1" / "trouble").touch()
        message = await told(stage, "Hung")
        assert "demo-worker-1 (rank 1) on " in message
        assert "does not join the call that the others wait in" in message
        assert "it is in take_a_lock_twice (troubled.py:" in message
        assert "in all_reduce" in caplog.text, "the stack of the other rank"
        await eventually_async(lambda: has_failed(stage), says=stage.status)
        status = await stage.phase("Running")
        assert (status["attempt"], status["lastFailure"]["reason"]) == (1, "Hung")
        assert status["goodput"]["stalledSeconds"] >= LIMITS.floor_seconds

    await play(act)


async def has_failed(stage: Reporting) -> bool:
    return "lastFailure" in await stage.status()


async def throttle(running: RunningJob) -> None:
    """Let worker 1 run for a part of the time only."""
    runs, rests = DUTY_SECONDS
    while True:
        running.workers[1].send(signal.SIGSTOP)
        await asyncio.sleep(rests)
        running.workers[1].send(signal.SIGCONT)
        await asyncio.sleep(runs)


@pytest.mark.parametrize("number", range(NORMAL_RUNS))
async def test_a_run_that_trains_evaluates_and_saves_raises_no_alarm(
    number: int, play, start_job, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    has_servers = number % 2 == 1
    program, python, data = (
        (WIDE_AND_DEEP, "parameter_server_python", "census")
        if has_servers
        else (RESNET, "collective_python", "digits")
    )
    command = [request.getfixturevalue(python), program]
    settings = {
        "DATA_DIR": request.getfixturevalue(data),
        "CHECKPOINT_DIR": tmp_path / "shared",
        "EPOCHS": 1,
    }

    async def act(stage: Reporting) -> None:
        of_pods = await pods(stage, job().ps(1) if has_servers else job())
        running = start_job(command, ps=int(has_servers), workers=2, of_pods=of_pods, **settings)
        for worker in running.workers:
            assert await asyncio.to_thread(worker.exit_code) == 0, worker.lines
            assert not any("recorder is off" in line for line in worker.lines)
        assert list((tmp_path / "shared").iterdir()), "checkpoints"
        assert bool(await stage.progress()) is not has_servers, "steps with servers are in the log only"
        assert (await events(stage, "Hung"), await events(stage, "Straggler")) == ([], [])

    await play(act, LEARNED)
