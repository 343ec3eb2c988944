from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.images import EXAMPLES
from e2e.jobs import Body, Space, documents, example, with_environment
from e2e.volumes import example_data, provided


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Program and data, laid out by the example's own script."""
    shutil.copytree(example_data("wide_and_deep"), tmp_path / "wide_and_deep" / "data")
    lay_out = [sys.executable, str(EXAMPLES / "data_demo" / "lay_out.py"), "--volume", str(tmp_path)]
    subprocess.run(lay_out, check=True)
    return tmp_path


def on_this_machine(directory: Path) -> list[Body]:
    """Give the shipped volume and claim, with a directory in the place of the NFS server."""
    volume, claim = documents("examples/pv-pvc.yaml")
    del volume["spec"]["nfs"], volume["spec"]["mountOptions"]
    volume["spec"]["hostPath"] = {"path": str(directory)}
    return [volume, claim]


def test_program_and_data_come_from_a_volume_and_checkpoints_go_there(space: Space, directory: Path) -> None:
    with provided(space, on_this_machine(directory)):
        job = space.submit(with_environment(example("data_demo"), {"EPOCHS": 1}))
        job.await_phase("Completed", within_seconds=300)
    assert (directory / "checkpoints" / "pass-00001" / "done").exists()
