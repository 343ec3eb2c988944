"""From the first release to this one and back, with jobs that run: no pod is restarted, nothing is lost."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from behaviour.stage import Stage
from devcluster import ControlPlane
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.resource import PODS
from scripts.release.source import ROOT
from simkube.build import job
from simkube.kubelet.outcomes import Exit
from tests.apiserver import installed

FIRST = "0c926b1f6a9bc9ccc47583b20ebdbe3ffb6b669a"
"""The commit in which 0.1.0 got its entry in the changelog."""
pytestmark = [pytest.mark.apiserver, pytest.mark.thorough, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the first release."""
    archive = subprocess.run(
        ["git", "archive", FIRST, "src", "deploy"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip("this clone has not the commit of the first release")
    folder = tmp_path_factory.mktemp("first")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as opened:
        opened.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane.start() as started:
        yield started


@contextmanager
def operator(plane: ControlPlane, release: Path, log: Path, *, crd: bool = True) -> Iterator[None]:
    """Install a release as its files say, and run its operator with the rights that they give it."""
    operator_file = release / "deploy" / "v1" / "operator.yaml"
    plane.apply(*([release / "deploy" / "v1" / "crd.yaml"] if crd else []), operator_file)
    kubeconfig = installed.account_kubeconfig(plane)
    quiet = [
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        "--leader-elect",
        "--namespace=default",
    ]
    command = [sys.executable, "-m", "paddlejob.cli.main", "operator", f"--kubeconfig={kubeconfig}", *quiet]
    environment = {**os.environ, "PYTHONPATH": str(release / "src")}
    with (
        log.open("wb") as sink,
        subprocess.Popen(command, env=environment, cwd=release, stderr=sink) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(timeout=30) == 0, log.read_text()


async def pods(stage: Stage) -> dict[str, str]:
    listed = await stage.client.list(PODS, stage.namespace)
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in listed.items}


async def test_jobs_run_through_an_upgrade_and_a_downgrade(plane, before, tmp_path):
    async with installed.simulated_node(plane, "default") as stage:
        with operator(plane, before, tmp_path / "first.log"):
            for name, built in (
                ("servers", job("servers").ps(1).worker(2)),
                ("workers", job("workers").worker(2)),
            ):
                await stage.submit(built)
                await stage.phase("Running", name)
            await stage.submit(job("paused").worker(1).spec(suspend=True))
            await stage.phase("Suspended", "paused")
        trained = await pods(stage)
        assert len(trained) == 5

        with operator(plane, ROOT, tmp_path / "now.log"):
            stage.fates.set("new-worker-0", Exit(0))
            await stage.submit(job("new").worker(1).spec(cleanPodPolicy="Always", recorder=False))
            await stage.phase("Completed", "new")
            assert {
                name: (await stage.status(name))["phase"] for name in ("servers", "workers", "paused")
            } == {
                "servers": "Running",
                "workers": "Running",
                "paused": "Suspended",
            }
            assert trained.items() <= (await pods(stage)).items()

        # An older CRD would hide the fields that are new.
        with operator(plane, before, tmp_path / "first-again.log", crd=False):
            stage.fates.set("late-worker-0", Exit(0))
            await stage.submit(job("late").worker(1))
            await stage.phase("Completed", "late")
            assert trained.items() <= (await pods(stage)).items()
            assert (await stage.status("new"))["phase"] == "Completed"
            await stage.client.patch(PADDLE_JOBS, stage.namespace, "paused", {"spec": {"suspend": False}})
            await stage.phase("Running", "paused")
        # What the newer one had added to the spec is still there.
        assert (await stage.job("new"))["spec"]["recorder"] is False
