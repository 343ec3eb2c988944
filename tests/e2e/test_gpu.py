"""GPUs on a real kubelet: a device plugin advertises them, and no card is behind them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from devcluster import Cluster, ensure
from devcluster.settings import NODE_NAME
from e2e.images import RESNET
from e2e.jobs import Body, Space, collective, templates
from tests.support.waiting import eventually

GPU = "nvidia.com/gpu"
P100 = {"accelerator": "nvidia-tesla-p100"}
SHOW = "echo devices=$NVIDIA_VISIBLE_DEVICES backend=$PADDLE_DISTRI_BACKEND; ls /dev/nvidia*; sleep 600"


@pytest.fixture
def two_gpus(node: Cluster) -> Iterator[None]:
    """The node has two GPUs and says which; afterwards it has none."""
    # The node's /var/lib, seen from here.
    plugins = node.directory / "machine" / "var-lib" / "kubelet" / "device-plugins"
    plugin = subprocess.Popen([ensure(["gpus"])["gpus"], plugins, "2"])
    try:
        await_gpus(node, "2")
        node.kubectl("label", "node", NODE_NAME, *(f"{name}={value}" for name, value in P100.items()))
        yield
        node.kubectl("label", "node", NODE_NAME, *(f"{name}-" for name in P100))
    finally:
        plugin.kill()
        plugin.wait()
    await_gpus(node, "0")


def await_gpus(cluster: Cluster, count: str) -> None:
    def allocatable() -> str | None:
        status = cluster.request("GET", f"/api/v1/nodes/{NODE_NAME}")["status"]
        found: str | None = status["allocatable"].get(GPU)
        return found

    eventually(lambda: allocatable() == count, within_seconds=60, says=allocatable)


def asking(job: Body) -> Body:
    """Ask for a GPU of a P100 in each pod."""
    for template in templates(job):
        template["nodeSelector"] = P100
        template["containers"][0]["resources"] = {"limits": {GPU: 1}}
    return job


@pytest.mark.usefixtures("two_gpus")
def test_each_worker_holds_a_gpu_of_its_own_and_one_too_many_is_named(space: Space) -> None:
    job = space.submit(asking(collective("gpus", RESNET, ["sh", "-c", SHOW], replicas=2)))
    job.await_phase("Running")
    logs = [job.log(f"worker-{rank}").splitlines() for rank in range(2)]
    assert sorted(log[0] for log in logs) == ["devices=GPU-0 backend=", "devices=GPU-1 backend="]
    assert [log[1] for log in logs] == ["/dev/nvidia0", "/dev/nvidia0"]
    for pod in job.pods():
        # A limit is a request too, which is what the scheduler counts.
        assert pod["spec"]["containers"][0]["resources"] == {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
        assert pod["spec"]["nodeSelector"] == P100
    waiting = space.submit(asking(collective("more", RESNET, ["true"])))
    status = waiting.await_message("Insufficient nvidia.com/gpu")
    assert status["phase"] == "Pending"


@pytest.mark.usefixtures("two_gpus")
def test_a_job_that_holds_gpus_is_told_that_its_paddle_is_for_the_cpu(space: Space) -> None:
    job = space.submit(asking(collective("idle", RESNET, ["python3", "-c", "import paddle"], recorder=True)))
    job.await_phase("Completed", within_seconds=120)
    sentence = "this container holds 1 x nvidia.com/gpu, but its Paddle 3.3.1 was built for the CPU only"
    assert sentence in job.log("worker-0")


FALLS_BACK = """
import paddle, time
try:
    paddle.set_device("gpu")
except ValueError as error:
    print(error, flush=True)
time.sleep(600)
"""
IDLE = (
    "holds 1 x nvidia.com/gpu, but its Paddle was built for the CPU only; use an image with paddlepaddle-gpu"
)


@pytest.mark.usefixtures("two_gpus")
def test_the_same_is_told_without_the_recorder_of_a_job_that_runs_and_of_one_that_fails(space: Space) -> None:
    runs = space.submit(asking(collective("falls-back", RESNET, ["python3", "-c", FALLS_BACK])))
    program = "import paddle; paddle.CUDAPlace(0)"
    fails = space.submit(asking(collective("insists", RESNET, ["python3", "-c", program])))
    assert f"; it {IDLE}" in fails.await_phase("Failed", within_seconds=120)["message"]
    runs.await_message(f"; worker-0 {IDLE}")
    told = eventually(lambda: [each for each in space.list("events") if each["reason"] == "IdleAccelerators"])
    assert {each["message"] for each in told} == {f"worker-0 {IDLE}"}
