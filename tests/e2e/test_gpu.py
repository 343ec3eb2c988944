"""GPUs on a real kubelet: a device plugin advertises them, and no card is behind them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from devcluster import Cluster, ensure
from devcluster.node.runtime import NodeRuntime
from devcluster.settings import NODE_NAME
from documents import files
from e2e.images import RESNET, RESNET_GPU, gpu_recipes
from e2e.jobs import Body, Job, Space, collective, losses, result, templates, with_environment
from e2e.report import REPORT
from tests.support.waiting import eventually

GPU = "nvidia.com/gpu"
P100 = {"accelerator": "nvidia-tesla-p100"}
SHOW = "echo devices=$NVIDIA_VISIBLE_DEVICES backend=$PADDLE_DISTRI_BACKEND; ls /dev/nvidia*; sleep 600"


@pytest.fixture
def two_gpus(node: Cluster) -> Iterator[None]:
    with gpus(node, "2"):
        yield


@pytest.fixture
def four_gpus(node: Cluster) -> Iterator[None]:
    with gpus(node, "4"):
        yield


@contextmanager
def gpus(node: Cluster, count: str) -> Iterator[None]:
    """Give the node GPUs and the label of a P100; afterwards it has none."""
    # The node's /var/lib, seen from here.
    plugins = node.directory / "machine" / "var-lib" / "kubelet" / "device-plugins"
    plugin = subprocess.Popen([ensure(["gpus"])["gpus"], plugins, count])
    try:
        await_gpus(node, count)
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


@pytest.fixture(scope="module")
def gpu_image(node: Cluster) -> None:
    """The node has the image with paddlepaddle-gpu."""
    with REPORT.timed("build the images with paddlepaddle-gpu"):
        images = [recipe.build() for recipe in gpu_recipes()]
    with REPORT.timed("give the one with a program to the node"):
        NodeRuntime(node.directory).import_images(images[-1:])
    REPORT.note(f"image {images[-1].name}", images[-1].size)


def started(space: Space, body: Body) -> Job:
    """Start a job for one epoch; each pod holds a GPU of its own."""
    job = space.submit(with_environment(body, {"EPOCHS": 1}))
    job.await_phase("Running", within_seconds=120)
    show = ("--", "printenv", "NVIDIA_VISIBLE_DEVICES")
    held = [space.kubectl("exec", pod, *show).strip() for pod in job.uids()]
    assert sorted(held) == [f"GPU-{index}" for index in range(len(held))]
    return job


def completed(job: Job) -> list[str]:
    """Wait for the end and return the log of the first worker."""
    with job.space.followed(f"{job.name}-worker-0") as log:
        job.await_phase("Completed", within_seconds=300)
    REPORT.seconds(f"{job.name} with GPUs: submit to Completed", time.monotonic() - job.submitted)
    return log


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("four_gpus")
def test_servers_and_workers_of_the_guide_train_on_the_nodes_that_they_select(space: Space) -> None:
    """With the guide's own image, whose Paddle is for the CPU."""
    job = started(space, files.jobs()["002-tutorial-3-paddlejob"])
    assert len(job.uids()) == 4
    assert set(space.names("services")) == set(job.uids())
    assert [pod["spec"]["nodeSelector"] for pod in job.pods()] == [P100] * 4
    log = completed(job)
    assert losses(log)[-1] < losses(log)[0] / 1.5
    assert result(log, "auc") > 0.9


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("gpu_image", "two_gpus")
def test_workers_of_the_guide_train_with_the_paddle_for_gpus(space: Space) -> None:
    """They train on the CPU, because no card is behind the device."""
    body = files.jobs()["002-tutorial-2-paddlejob"]
    for template in templates(body):
        template["containers"][0]["image"] = RESNET_GPU
    log = completed(started(space, body))
    assert result(log, "accuracy") > 0.7
    assert any(line.endswith("on 2 workers") for line in log)


WITH_CUDA = "import paddle; assert paddle.is_compiled_with_cuda(); print('CUDA', paddle.version.cuda())"


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("gpu_image", "two_gpus")
def test_no_warning_for_a_paddle_that_was_built_with_cuda(space: Space) -> None:
    job = space.submit(asking(collective("cuda", RESNET_GPU, ["python3", "-c", WITH_CUDA], recorder=True)))
    job.await_phase("Completed", within_seconds=120)
    log = job.log("worker-0")
    assert "CUDA 11.8" in log
    assert "built for the CPU only" not in log
