"""Two pods with four processes each: every process is a rank with its own log, state and environment."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import msgspec
import pytest

import paddlejob
from e2e.images import RESNET
from e2e.jobs import Job, Space, collective, with_environment
from e2e.report import REPORT
from paddlejob.client.cluster import Cluster
from tests.dashboard.pages import opened
from tests.support.editor import editor_kubeconfig
from tests.support.waiting import eventually

TRAINING = """
import os, time
import paddle
import paddle.distributed as dist
dist.init_parallel_env()
rank = dist.get_rank()
model = paddle.DataParallel(paddle.nn.Linear(4, 1))
optimizer = paddle.optimizer.SGD(0.001, parameters=model.parameters())
step = 0
while not os.path.exists("/tmp/end") or rank != 5:
    step += 1
    loss = model(paddle.ones([2, 4])).mean()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} of {dist.get_world_size()} made step {step}", flush=True)
    time.sleep(0.2)
raise ValueError("rank 5 cannot continue")
"""
START = (
    'echo "$TRAINING" >/tmp/train.py && '
    "exec python -m paddle.distributed.launch --nproc_per_node 4 /tmp/train.py"
)


@pytest.fixture
def cards(space: Space) -> Job:
    body = collective("cards", RESNET, ["sh", "-c", START], replicas=2, recorder=True, backoffLimit=0)
    return space.submit(with_environment(body, {"TRAINING": TRAINING}))


@pytest.fixture
def words(space: Space) -> list[str]:
    """The command of a user with the role `edit`."""
    user = editor_kubeconfig(space.cluster, space.name)
    return [sys.executable, "-m", "paddlejob.cli.kubectl", "--kubeconfig", str(user)]


def check_table(text: str) -> None:
    rows = [line.split() for line in text.splitlines()]
    processes = {row[0]: row for row in rows if row[1:2] in (["worker-0"], ["worker-1"])}
    assert {rank: row[1] for rank, row in processes.items()} == {
        str(rank): f"worker-{rank // 4}" for rank in range(8)
    }
    for rank, (_, _, _, step, loss, *last) in processes.items():
        assert int(step) > 0
        assert loss != "-"
        assert " ".join(last).startswith(f"rank {rank} of 8 made step ")


def check_processes(processes: list[dict[str, Any]]) -> None:
    places = [(each["rank"], each["pod"]) for each in processes]
    assert places == [(rank, f"worker-{rank // 4}") for rank in range(8)]
    for each in processes:
        assert each["step"] > 0
        assert each["loss"]
        assert each["lastLine"].startswith(f"rank {each['rank']} of 8 made step ")


async def shown_by_the_dashboard(space: Space) -> list[dict[str, Any]]:
    """Return the processes of both pods as the page of the job requests them."""
    async with Cluster.open(namespace=space.name) as jobs, opened(jobs) as pages:
        assert (await pages.get("/", query=pages.query)).status == 200
        paths = (f"/api/jobs/{space.name}/cards/processes/worker-{index}" for index in range(2))
        answers = [await pages.get(path) for path in paths]
        return [each for answer in answers for each in answer.json]


def test_every_process_is_a_rank(
    cards: Job, space: Space, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", words[-1])
    sdk_job = paddlejob.Job.get("cards", where="cluster", namespace=space.name)

    def pdj(*arguments: str) -> str:
        done = subprocess.run([*words, *arguments], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    cards.await_phase("Running", within_seconds=120)
    with subprocess.Popen(
        [*words, "logs", "cards", "-f", "--rank", "6"], stdout=subprocess.PIPE
    ) as following:
        # Following begins before the launcher has started the process.
        eventually(lambda: cards.status().get("progress", {}).get("processes") == 4, within_seconds=240)
        # Paddle prints warnings first.
        first = next(line for line in following.stdout if line.startswith(b"rank "))
        assert first == b"rank 6 of 8 made step 1\n"
        following.kill()

    began = time.monotonic()
    assert "rank 5 of 8 made step 1\n" in pdj("logs", "cards", "--rank", "5")
    REPORT.seconds("read the log of a rank", time.monotonic() - began)
    began = time.monotonic()
    described = pdj("describe", "cards")
    REPORT.seconds("describe two pods of four processes", time.monotonic() - began)
    for table in (described, pdj("top", "cards", "--once"), pdj("get", "cards", "--ranks")):
        check_table(table)
    check_processes([msgspec.to_builtins(each) for each in sdk_job.processes()])
    assert [each.rank for each in sdk_job.processes(5)] == [5]
    check_processes(asyncio.run(shown_by_the_dashboard(space)))
    environment = pdj("env", "cards", "--rank", "5").splitlines()
    assert {"PADDLE_TRAINER_ID=5", "PADDLE_LOCAL_RANK=1", "PADDLE_LOCAL_SIZE=4"} <= {*environment}
    assert "PADDLE_TRAINER_ID=1" in pdj("env", "cards", "--rank", "worker-1").splitlines()
    stack = pdj("stack", "cards", "--rank", "5")
    assert stack.startswith("worker-1 rank 5:")
    assert "/tmp/train.py" in stack

    pdj("exec", "cards", "--rank", "5", "--", "touch", "/tmp/end")
    cards.await_phase("Failed", within_seconds=120)
    after = pdj("logs", "cards", "--rank", "5")
    assert "the log file of rank 5" in after
    # The launcher prints its first process, and the end of one process that failed, which may be another one.
    assert "rank 4 of 8 made step " in after
