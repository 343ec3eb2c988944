"""Real Paddle under the supervisor: a rank is killed, and training goes on in the same containers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from examples.conftest import Place
from paddlejob.operator.reports import certificate
from tests.recorder.interpreter import SITE
from tests.recorder.supervised import Container, Operator, children, mount, start
from tests.support.waiting import eventually_async

LAUNCH = ["-m", "paddle.distributed.launch"]
WORKERS = 2

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]


class Job:
    """Two workers in containers of their own, and an operator that runs them again together."""

    def __init__(self, directory: Path, operator: Operator) -> None:
        self.directory = directory
        self.operator = operator
        self.pods: list[Container] = []

    async def start(
        self, command: list[str], python: str, trusted: certificate.Certificate, **more: str
    ) -> None:
        place = Place(0, WORKERS)
        for rank in range(WORKERS):
            directory = self.directory / f"worker-{rank}"
            recorder = mount(directory, trusted, str(rank), "PARK_SECONDS = 0.0")
            variables = {**place.environment("worker", rank), **more, "PADDLEJOB_ATTEMPT": "0"}
            variables["PADDLEJOB_PROGRESS_FILE"] = str(self.directory / "progress")
            url = self.operator.url
            self.pods.append(start(command, recorder, url, directory, python=python, **variables))

    async def run_again(self, attempt: int) -> None:
        """Do as the operator does: no process of the next attempt starts before all of this one are gone."""
        for rank in range(WORKERS):
            self.operator.order(str(rank), stop=attempt)
        states = self.operator.by_token
        await eventually_async(
            lambda: all(state["state"] == "down" for state in states.values()), says=lambda: states
        )
        place = Place(0, WORKERS)
        for rank in range(WORKERS):
            self.operator.orders[str(rank)].clear()
            self.operator.order(str(rank), run=attempt + 1, env=place.environment("worker", rank))

    def first_steps(self, attempt: int) -> dict[int, float]:
        """Return the times of the first reports of each rank in an attempt with a step."""
        lines = (self.directory / "progress").read_text().splitlines()
        found: dict[int, float] = {}
        for report in map(json.loads, lines):
            if report["attempt"] == attempt and report["step"]:
                found.setdefault(report["rank"], report["time"])
        return found


TRAINS = """
import os, sys, time
import paddle

paddle.distributed.init_parallel_env()
rank, attempt = paddle.distributed.get_rank(), int(os.environ["PADDLEJOB_ATTEMPT"])
paddle.seed(1)
net = paddle.nn.Linear(64, 64)
model = paddle.DataParallel(net)
optimizer = paddle.optimizer.Adam(0.01, parameters=net.parameters())
checkpoint, begin = os.environ["CHECKPOINT"], 0
if os.path.exists(checkpoint):
    saved = paddle.load(checkpoint)
    begin = saved["step"]
    net.set_state_dict(saved["net"])
    optimizer.set_state_dict(saved["optimizer"])
    print("resumes at", begin, flush=True)
for step in range(begin, 40):
    if rank == 1 and step == 5 + 10 * attempt and attempt < int(os.environ["KILLS"]):
        # Here it is killed, while the other rank waits for it.
        print("waits", attempt, flush=True)
        time.sleep(1000)
    paddle.seed(100 * step + rank)
    model(paddle.rand([8, 64])).square().mean().backward()
    optimizer.step()
    optimizer.clear_grad()
    if rank == 0:
        state = {"step": step + 1, "net": net.state_dict(), "optimizer": optimizer.state_dict()}
        paddle.save(state, checkpoint + ".new")
        os.replace(checkpoint + ".new", checkpoint)
print("weights", net.weight.numpy().tobytes().hex(), flush=True)
"""


@pytest.mark.parametrize(
    ("launcher", "kills", "parked"),
    [([], 3, ""), (LAUNCH, 1, ""), ([], 2, "1")],
    ids=["plain", "launch", "parked"],
)
async def test_a_killed_rank_resumes_in_place_with_the_same_weights(
    launcher, kills, parked, start_job, collective_python, tmp_path
):
    (tmp_path / "train.py").write_text(TRAINS)
    command = [*launcher, str(tmp_path / "train.py")]
    settings = {"KILLS": "0", "PADDLEJOB_ATTEMPT": "0", "CHECKPOINT": str(tmp_path / "undisturbed")}
    undisturbed = start_job([collective_python, *command], workers=WORKERS, **settings)
    expected = [worker.wait_for(r"weights \S+$")[0] for worker in undisturbed.workers]
    undisturbed.exit_codes()

    made = await certificate._make("127.0.0.1")
    operator = Operator(made)
    job = Job(tmp_path / "job", operator)
    settings = {"KILLS": str(kills), "CHECKPOINT": str(tmp_path / "checkpoint"), "PADDLEJOB_PARKED": parked}
    async with operator.serve():
        try:
            await job.start(command, collective_python, made, **settings)
            seconds = [await kill_and_resume(job, attempt) for attempt in range(kills)]
            assert [await pod.exit_code() for pod in job.pods] == [0, 0]
        finally:
            for pod in job.pods:
                pod.destroy()
    for pod, line in zip(job.pods, expected, strict=True):
        lines = pod.log.splitlines()
        assert line in lines
        assert [each for each in lines if each.startswith("resumes at")] == [
            f"resumes at {5 + 10 * attempt}" for attempt in range(kills)
        ]
        assert pod.log.count("starts in place") == kills
    print("seconds from the kill to the first step of all ranks:", seconds)


async def kill_and_resume(job: Job, attempt: int) -> float:
    """Kill a rank that the other waits for; return the seconds until all ranks have made a step again."""
    _, victim = job.pods
    await eventually_async(lambda: victim.has(f"waits {attempt}"), **waits(job))
    if victim.environment["PADDLEJOB_PARKED"]:
        await eventually_async(lambda: all(has_parked(pod) for pod in job.pods), **waits(job))
    killed = time.time()
    os.kill(victim.program, signal.SIGKILL)
    await eventually_async(lambda: job.operator.by_token["1"]["state"] == "down")
    assert job.operator.by_token["1"] == {"attempt": attempt, "state": "down", "code": 137}
    await job.run_again(attempt)
    await eventually_async(lambda: len(job.first_steps(attempt + 1)) == WORKERS, **waits(job))
    return max(job.first_steps(attempt + 1).values()) - killed


def has_parked(pod: Container) -> bool:
    """Return whether a process of the container has imported Paddle and waits at its pipe."""
    others = [Path(f"/proc/{pid}") for pid in children(pod.first)[1:]]
    # Only root sees where a process waits.
    return any(
        "libpaddle.so" in (each / "maps").read_text()
        and (os.geteuid() != 0 or "pipe" in (each / "wchan").read_text())
        for each in others
    )


def waits(job: Job) -> dict[str, Any]:
    """Return the options of a long wait, whose failure shows the logs."""
    return {"within_seconds": 120, "says": lambda: "\n".join(pod.log for pod in job.pods)}


LATE = """
import os, sys, time
import paddle
if os.environ["PADDLE_TRAINER_ID"] == "0":
    while not os.path.exists("ready-1"):
        time.sleep(0.01)
    # The other rank tries for a while before this one listens.
    time.sleep(0.5)
else:
    open("ready-1", "w").close()
paddle.distributed.init_parallel_env()
print("joined")
"""


@pytest.mark.parametrize("version", ["parameter_server_python", "collective_python"])
async def test_a_rank_waits_for_the_masters_port_and_paddle_need_not_retry(version, request, tmp_path):
    python = request.getfixturevalue(version)
    logs = {}
    for path in ("", str(SITE)):
        (tmp_path / "ready-1").unlink(missing_ok=True)
        place = Place(0, WORKERS)
        logs[path] = await asyncio.gather(
            *(run_late(python, place.environment("worker", rank), path, tmp_path) for rank in range(WORKERS))
        )
        assert all(b"joined" in log for log in logs[path]), logs
    assert b"not yet listening" in logs[""][1]
    assert b"not yet listening" not in logs[str(SITE)][1]
    assert b"recorder is off" not in b"".join(logs[str(SITE)])


async def run_late(python: str, environment: dict[str, str], path: str, directory: Path) -> bytes:
    variables = {**environment, "PYTHONPATH": path, "PADDLEJOB_PROGRESS_FILE": str(directory / "progress")}
    process = await asyncio.create_subprocess_exec(
        python,
        *("-c", LATE),
        env={**variables, "GLOG_minloglevel": "0"},
        cwd=directory,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output
