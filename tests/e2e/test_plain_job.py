"""Training as a plain Job, from data to trained passes, as docs/plain-job.md tells it."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devcluster import Cluster
from devcluster.images.build import Image
from devcluster.node.runtime import NodeRuntime
from documents import files
from e2e.conftest import fresh_namespace
from e2e.images import PLAIN_JOB
from e2e.jobs import Body, Space, documents, eventually, losses, result
from e2e.registry import serving
from e2e.report import REPORT
from e2e.volumes import claimed, example_data, provided

MFS = Path("/home/work/mfs")
GUIDES_IMAGES = (
    "docker.io/paddlepaddle/paddle-tutorial:k8s_data",
    "registry.example.org/me/paddle:mypaddle",
)


@pytest.fixture
def space(bare_node: Cluster):
    """A namespace; no operator is needed."""
    yield from fresh_namespace(bare_node)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The shared volume, and beside it the data that a node with a network would download."""
    shutil.copytree(example_data("wide_and_deep"), tmp_path / "raw")
    (tmp_path / "volume").mkdir()
    return tmp_path


def data_job(raw: Path) -> Body:
    (job,) = documents("examples/job/data.yaml")
    volumes = {volume["name"]: volume for volume in job["spec"]["template"]["spec"]["volumes"]}
    del volumes["raw"]["emptyDir"]
    volumes["raw"]["hostPath"] = {"path": str(raw)}
    return job


def train_job(epochs: int) -> Body:
    (job,) = documents("examples/job/train.yaml")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (entry,) = (entry for entry in container["env"] if entry["name"] == "EPOCHS")
    entry["value"] = str(epochs)
    return job


def complete(space: Space, body: Body, *, within_seconds: float) -> None:
    """Create a Job and wait until it is complete."""
    name = body["metadata"]["name"]
    path = f"/apis/batch/v1/namespaces/{space.name}/jobs/{name}"
    started = time.monotonic()

    def finished() -> bool:
        conditions = space.cluster.request("GET", path)["status"].get("conditions", [])
        held = {each["type"]: each.get("message") for each in conditions if each["status"] == "True"}
        assert "Failed" not in held, (held, space.kubectl("logs", f"job/{name}", "--all-containers"))
        return "Complete" in held

    space.create(body)
    eventually(finished, within_seconds=within_seconds, says=lambda: space.kubectl("get", "pods"))
    REPORT.seconds(f"plain Job {name}", time.monotonic() - started)


def test_three_pods_split_data_and_train_without_an_operator(space: Space, directory: Path) -> None:
    output = directory / "volume" / "paddle-cluster-job" / "output"
    with provided(space, claimed("mfs-volume", "mfs", directory / "volume")):
        complete(space, data_job(directory / "raw"), within_seconds=120)
        space.create(*documents("examples/job/rbac.yaml"))
        complete(space, train_job(1), within_seconds=300)
    log = (output / "node_0" / "train.log").read_text().splitlines()
    assert losses(log)[-1] < losses(log)[0] / 1.5
    assert result(log, "auc") > 0.9
    assert (output / "pass-00001" / "done").exists()
    assert sorted(path.name for path in output.glob("node_*")) == ["node_0", "node_1", "node_2"]


@pytest.fixture
def guides_directory(bare_node: Cluster, directory: Path) -> Iterator[None]:
    """The shared volume at the path that it has on the nodes of the original guide."""
    # With the node's processes, because umount reads its own mounts in /proc.
    inside = ["nsenter", f"--target={NodeRuntime(bare_node.directory).machine_pid()}", "--mount", "--pid"]
    made = [path for path in (MFS, *MFS.parents) if not path.exists()]
    MFS.mkdir(parents=True, exist_ok=True)
    subprocess.run([*inside, "mount", "--bind", directory / "volume", MFS], check=True)
    try:
        yield
    finally:
        subprocess.run([*inside, "umount", "--lazy", MFS], check=True)
        for path in made:
            path.rmdir()


# The last test here: the kubelet then has a record of this image, and pulls it for every name that the record
# lacks. The name of the test above is in no registry.
@pytest.mark.usefixtures("guides_directory")
def test_the_manifests_of_the_original_guide_train_unchanged(
    bare_node: Cluster, images: list[Image], directory: Path, tmp_path: Path
) -> None:
    space, volume = Space(bare_node, "default"), directory / "volume"
    [data], [train] = (files.read(files.HERE / f"004-plain-job-{number}-job.yaml") for number in (1, 2))
    (image,) = (each for each in images if each.name == PLAIN_JOB)
    claims, rbac = claimed("original-mfs", "mfs", volume), documents("examples/job/rbac.yaml")
    with (
        serving(bare_node, image, GUIDES_IMAGES, tmp_path / "registry") as requests,
        provided(space, claims),
    ):
        try:
            complete(space, data, within_seconds=200)
            space.create(*rbac)
            complete(space, train, within_seconds=300)
        finally:
            made = yaml.safe_dump_all([data, train, claims[1], *rbac])
            space.kubectl("delete", "--ignore-not-found", "--wait=false", "--filename=-", stdin=made)
    for name in GUIDES_IMAGES:
        repository, _, tag = name.partition("/")[2].partition(":")
        assert f"HEAD /v2/{repository}/manifests/{tag}" in requests
    job = volume / "paddle-cluster-job"
    output = job / "output"
    assert {"0", "1", "2", "output", "quick_start"} <= {path.name for path in job.iterdir()}
    assert (output / "pass-00001" / "done").exists()
    for node in range(3):
        check_logs(output / f"node_{node}", node)
    log = (output / "node_0" / "train.log").read_text().splitlines()
    assert losses(log)[-1] < losses(log)[0] / 1.5
    assert result(log, "auc") > 0.9


def check_logs(directory: Path, node: int) -> None:
    """Check the logs of a node: settings and servers as in the guide, and a server."""
    command, settings, *rest = (directory / "train.log").read_text().splitlines()
    assert command.endswith(f" trainer {node} commandline: python3 train.py")
    assert settings.startswith("--- --nics=eth0 --port=7164 --ports_num=2 ")
    addresses = re.search(r"--pservers=(\S+)", settings)[1].split(",")
    assert rest[:3] == [f"--- pserver {number} {address}:7164" for number, address in enumerate(addresses)]
    assert f"parameter server {node} of 3" in (directory / "server.log").read_text()
