"""Training as a plain Job, from data to trained passes, as docs/plain-job.md tells it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from devcluster import Cluster
from documents import files
from e2e.conftest import fresh_namespace
from e2e.images import PLAIN_JOB
from e2e.jobs import Body, Space, documents, eventually, losses, result
from e2e.report import REPORT
from e2e.volumes import claimed, example_data, provided


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


def original(space: Space, name: str, volume: Path) -> Body:
    """Give a Job of the original guide, changed only in what differs from cluster to cluster."""
    (job,) = files.read(files.HERE / f"{name}.yaml")
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    container |= {"image": PLAIN_JOB, "imagePullPolicy": "IfNotPresent"}
    for entry in container["env"]:
        if entry["name"] == "JOB_NAMESPACE":
            entry["value"] = space.name
    for each in spec["volumes"]:
        if "hostPath" in each:
            each["hostPath"]["path"] = str(volume)
    return job


def test_the_manifests_of_the_original_guide_train(space: Space, directory: Path) -> None:
    volume = directory / "volume"
    with provided(space, claimed("original-mfs", "mfs", volume)):
        complete(space, original(space, "004-plain-job-1-job", volume), within_seconds=120)
        space.create(*documents("examples/job/rbac.yaml"))
        complete(space, original(space, "004-plain-job-2-job", volume), within_seconds=300)
    job = volume / "paddle-cluster-job"
    assert {"0", "1", "2", "output", "quick_start"} <= {path.name for path in job.iterdir()}
    for node in range(3):
        log = (job / "output" / f"node_{node}" / "train.log").read_text()
        assert f" trainer {node} commandline: python3 train.py\n" in log.splitlines(keepends=True)[0]


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
