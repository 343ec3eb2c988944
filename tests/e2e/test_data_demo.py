"""Program and data on the NFS volume of the documents, with a stand-in for the NFS client."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devcluster import Cluster
from devcluster.node.runtime import NodeRuntime
from documents import files
from e2e.images import EXAMPLES
from e2e.jobs import Body, Space, documents, example, result, with_environment
from e2e.volumes import example_data

HELPER = Path("/sbin/mount.nfs")
"""mount(8) runs it for volumes of this type."""
RETAIN = '{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}'


@pytest.fixture
def directory() -> Iterator[Path]:
    """Program and data, laid out by the example's own script.

    They are on another file system than the files of the kubelet, by which it recognizes a mount.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as found:
        shutil.copytree(example_data("wide_and_deep"), Path(found) / "wide_and_deep" / "data")
        lay_out = [sys.executable, str(EXAMPLES / "data_demo" / "lay_out.py"), "--volume", found]
        subprocess.run(lay_out, check=True)
        yield Path(found)


@pytest.fixture
def asked(node: Cluster, directory: Path, tmp_path: Path) -> Iterator[Path]:
    """The file with the arguments of each NFS mount on the node, which mounts the directory instead."""
    found, script = tmp_path / "asked", tmp_path / "mount.nfs"
    script.write_text(f'#!/bin/sh\necho "$@" >>{found}\nexec mount --bind {directory} "$2"\n')
    script.chmod(0o755)
    inside = ["nsenter", f"--target={NodeRuntime(node.directory).machine_pid()}", "--mount", "--pid"]
    is_new = not HELPER.exists()
    HELPER.touch()
    subprocess.run([*inside, "mount", "--bind", script, HELPER], check=True)
    try:
        yield found
    finally:
        subprocess.run([*inside, "umount", HELPER], check=True)
        if is_new:
            HELPER.unlink()


@contextmanager
def volume(space: Space, bodies: list[Body]) -> Iterator[None]:
    """Create a volume and its claim, and delete them after the pods that use them."""
    name = bodies[0]["metadata"]["name"]
    space.create(*bodies)
    try:
        yield
    finally:
        # The volume of the documents would be emptied by a pod.
        space.kubectl("patch", "persistentvolume", name, f"--patch={RETAIN}")
        space.kubectl("delete", "pdj", "--all")
        space.kubectl("delete", "persistentvolumeclaim", "--all", "--timeout=60s")
        space.kubectl("delete", "persistentvolume", name, "--timeout=60s")


def trained(space: Space, body: Body) -> float:
    """Train for one epoch and return the result."""
    job = space.submit(with_environment(body, {"EPOCHS": 1}))
    job.await_phase("Running", within_seconds=120)
    with space.followed(f"{job.name}-worker-0") as log:
        job.await_phase("Completed", within_seconds=300)
    return result(log, "auc")


def test_program_and_data_come_from_a_volume_and_checkpoints_go_there(
    space: Space, directory: Path, asked: Path
) -> None:
    with volume(space, documents("examples/pv-pvc.yaml")):
        assert trained(space, example("data_demo")) > 0.9
    check_mounts(asked, "nfs.example.com:/nas")
    assert (directory / "checkpoints" / "pass-00001" / "done").exists()


def test_the_volume_and_the_job_of_the_tutorial_train_unchanged(space: Space, asked: Path) -> None:
    with volume(space, files.read(next(files.HERE.glob("002-tutorial-5-*")))):
        assert trained(space, files.jobs()["002-tutorial-6-paddlejob"]) > 0.9
    check_mounts(asked, "10.12.201.xx:/nas")


def check_mounts(asked: Path, source: str) -> None:
    """Check that the volume was mounted for each of the four pods, as it is written."""
    mounts = [line.split() for line in asked.read_text().splitlines()]
    assert len(mounts) == 4
    for served, _, *options in mounts:
        assert served == source
        assert {"hard", "nfsvers=4.1"} <= set(options[options.index("-o") + 1].split(","))
