"""`kubectl pdj` against the in-memory cluster, served over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from paddlejob.cli.kubectl import group
from paddlejob.cli.main import main as paddlejob_group
from simkube.build import JobBuilder, job
from tests.support.served_api import ServedCluster, served_cluster

Pdj = Callable[..., Result]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    with served_cluster(tmp_path) as served:
        yield served


@pytest.fixture
def pdj(cluster: ServedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pdj:
    """Run `kubectl pdj` with arguments; standard output and error are kept apart."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PADDLEJOB_RUNS", str(tmp_path / "runs"))

    def run(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(group, [str(each) for each in arguments], input=stdin)

    return run


@pytest.fixture
def paddlejob(pdj: Pdj) -> Pdj:
    """Run `paddlejob` beside the same cluster."""
    del pdj

    def run(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(paddlejob_group, [str(each) for each in arguments], input=stdin)

    return run


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of runs of one that has ended, for commands that only read it."""
    directory = tmp_path_factory.mktemp("finished")
    path = directory / "job.yaml"
    path.write_text(json.dumps(manifest(job().worker(1, command=["sh", "-c", "echo hello"]))))
    environment = {"PADDLEJOB_RUNS": str(directory / "runs"), "HOME": str(directory)}
    assert CliRunner(env=environment).invoke(paddlejob_group, ["submit", str(path), "--logs"]).exit_code == 0
    return directory / "runs"


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Write a file with these jobs or other objects."""

    def write(*objects: JobBuilder | dict, name: str = "job.yaml") -> Path:
        path = tmp_path / name
        path.write_text("\n---\n".join(json.dumps(manifest(each)) for each in objects))
        return path

    return write


def manifest(built: JobBuilder | dict) -> dict:
    """Return what a person writes: nothing that only a server knows."""
    if isinstance(built, dict):
        return built
    metadata = {
        k: v for k, v in built.manifest["metadata"].items() if k not in ("uid", "generation", "namespace")
    }
    return {**built.manifest, "metadata": metadata}
