"""Real training on this machine: the worked examples, stopped, killed and brought to their end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from local import jobs
from local.processes import marked
from paddlejob.client.local_runs import LocalRuns
from paddlejob.client.logs.model import LogQuery
from paddlejob.local.runner import Ending

ROOT = Path(__file__).resolve().parents[2]
NO_DELAY = {"delaySeconds": 0, "maxDelaySeconds": 0}

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]


def made_by(script, argument):
    words = [sys.executable, str(ROOT / "scripts" / script), argument]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def python_for(example, paddle):
    """Return an interpreter with that Paddle, when the example's data is there too."""
    made_by("example_data.py", example)
    return made_by("paddle_env.py", paddle)


@pytest.fixture(scope="session")
def parameter_server_python():
    return python_for("wide_and_deep", "2.6.2")


@pytest.fixture(scope="session")
def collective_python():
    return python_for("resnet", "3.3.1")


@pytest.fixture
def example(directory):
    """An example's job as it is deployed, with checkpoints on a volume and other settings of ours."""

    def load(name, *, env=None, grace_seconds=30, **spec):
        job = yaml.safe_load((ROOT / "deploy" / "examples" / f"{name}.yaml").read_text())
        variables = {"CHECKPOINT_DIR": "/checkpoints", **(env or {})}
        for role in ("ps", "worker"):
            if role in job["spec"]:
                pod = job["spec"][role]["template"]["spec"]
                container = pod["containers"][0]
                pod["terminationGracePeriodSeconds"] = grace_seconds
                container["env"] = [{"name": key, "value": value} for key, value in variables.items()]
                container.setdefault("volumeMounts", []).append(
                    {"name": "checkpoints", "mountPath": "/checkpoints"}
                )
                pod.setdefault("volumes", []).append(
                    {"name": "checkpoints", "hostPath": {"path": str(directory)}}
                )
        job["spec"].update(spec)
        return job

    return load


def found(pattern, text):
    match = re.search(pattern, text, re.MULTILINE)
    assert match, text
    return match[1]


async def said(run, pod, pattern):
    await run.said(pod, pattern, "paddle")


@pytest.mark.training
async def test_a_stopped_wide_and_deep_job_resumes_and_reaches_its_auc(
    start, example, parameter_server_python, directory
):
    job = example("wide_and_deep", env={"EPOCHS": "1"})
    first = await start(job, python=parameter_server_python)
    await said(first, "worker-0", "epoch 1 step 98/392")
    first.runner.interrupt()
    assert await first.ended() is Ending.INTERRUPTED
    stopped = found(r"^stopped at (\S+)$", first.log("worker-0", "paddle"))
    assert (directory / stopped / "done").is_file()

    second = await start(job, python=parameter_server_python)
    assert await second.ended() is Ending.COMPLETED
    log = second.log("worker-0", "paddle")
    assert found(r"^resumed from (\S+)$", log) == stopped
    assert float(found(r"^done auc (\S+) ", log)) >= 0.92
    assert second.status.ps.ready == "2/2"
    assert not marked(second.mark)


async def test_a_killed_server_is_the_jobs_failure(start, example, parameter_server_python):
    job = example("wide_and_deep", backoffLimit=0, grace_seconds=3)
    run = await start(job, python=parameter_server_python)
    await said(run, "worker-0", "epoch 1 step 49/392")
    await run.kill("ps-1")
    assert await run.ended() is Ending.FAILED
    assert run.status.message.startswith("ps-1 exited with code 137")
    assert not marked(run.mark)


@pytest.mark.training
async def test_a_killed_resnet_worker_costs_a_restart_and_the_accuracy_is_reached(
    start, example, collective_python
):
    run = await start(example("resnet", restartPolicy=NO_DELAY), python=collective_python)
    assert "it runs on the CPU" in run.session.record.notes[0]
    await said(run, "worker-0", "checkpoint pass-00001")
    await run.kill("worker-1")
    assert await run.ended() is Ending.COMPLETED
    assert run.status.restarts == 1
    log = run.log("worker-0", "paddle")
    assert found(r"^resumed from (\S+)$", log).startswith("pass-")
    assert float(found(r"^done accuracy (\S+) ", log)) >= 0.95
    assert not marked(run.mark)


PROCESS = """
import paddle
import paddle.distributed as dist
dist.init_parallel_env()
model = paddle.DataParallel(paddle.nn.Linear(4, 1))
optimizer = paddle.optimizer.SGD(0.001, parameters=model.parameters())
for step in range(1, 6):
    loss = model(paddle.ones([2, 4])).mean()
    loss.backward()
    optimizer.step()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: step {step}/5 loss {float(loss):.4f}")
"""


async def test_every_process_of_a_pod_is_a_rank(tmp_path):
    (tmp_path / "train.py").write_text(PROCESS)
    runs = LocalRuns(tmp_path / "runs", python=made_by("paddle_env.py", "3.3.1"))
    launch = f"exec python -m paddle.distributed.launch --nproc_per_node 2 {tmp_path}/train.py"
    demo = await runs.submit(jobs.job(worker=jobs.role(2, launch)))
    assert (await demo.wait(timeout_seconds=240)).status.phase == "Completed"
    found = await demo.processes()
    assert [(each.rank, each.pod, each.step) for each in found] == [
        (rank, f"worker-{rank // 2}", 5) for rank in range(4)
    ]
    assert all(each.last_line.startswith(f"rank {each.rank} of 4: step 5/5 loss ") for each in found)
    lines = [line.text async for line in demo.lines(LogQuery(rank="3"))]
    assert [line for line in lines if line.startswith("rank 3 of 4: step ")] == lines[-5:]
    assert (await demo.environment("3"))["PADDLE_TRAINER_ID"] == "3"
    assert (await demo.refresh()).status.progress.processes == 2
