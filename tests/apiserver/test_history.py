"""Records of jobs on a real API server, kept by an operator with no more than its own roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from apiserver import installed
from apiserver.real_cluster import RealCluster
from devcluster import Cluster
from paddlejob.api import names
from paddlejob.cli.kubectl import group
from paddlejob.operator.settings import HistorySettings
from simkube.build import job
from tests.support.waiting import eventually

pytestmark = pytest.mark.apiserver

EVIL = "</pre><script>alert(1)</script>\x1b[31m"


@pytest.fixture
def real(control_plane: Cluster, namespace: str) -> Iterator[RealCluster]:
    installed.apply(control_plane, installed.CRD, installed.OPERATOR)
    operator = installed.account_kubeconfig(control_plane)
    history = HistorySettings(per_namespace=1)
    with RealCluster(control_plane, namespace, operator=operator, history=history).running() as cluster:
        yield cluster


@pytest.fixture
def pdj(real: RealCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBECONFIG", str(real.cluster.kubeconfig))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(group, ["-n", real.namespace, *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


def fail(real: RealCluster, name: str, *said: str) -> None:
    pod = f"{name}-worker-1"
    real.hold(pod, 1, message="ValueError: no data")
    real.do(lambda: real.stage.submit(job(name).worker(2)))
    real.write(pod, *said)
    real.let_go(pod)
    real.do(lambda: real.stage.phase("Failed", name))


def records(real: RealCluster) -> list[str]:
    path = f"/api/v1/namespaces/{real.namespace}/configmaps?labelSelector={names.LABEL_HISTORY}"
    found = real.cluster.request("GET", path)["items"]
    return sorted(each["metadata"]["labels"][names.LABEL_JOB] for each in found)


def test_delete_job_and_pods_and_history_still_shows_all(real, pdj, tmp_path):
    fail(real, "demo", "loading data", EVIL)
    eventually(lambda: records(real) == ["demo"])
    pdj("delete", "demo")
    # Sooner than the garbage collector, which knows of a new kind after half a minute.
    real.cluster.request("DELETE", f"/api/v1/namespaces/{real.namespace}/pods")
    eventually(lambda: not pdj("get") and not real.do(real.stage.names))

    headings, row = pdj("history").splitlines()
    assert headings.split() == ["NAME", "RESULT", "AGE", "DURATION", "ATTEMPTS", "FIRST", "FAILURE"]
    assert row.split()[:2] == ["demo", "Failed"]
    assert row.endswith("worker-1 exited with code 1: ValueError: no data")

    record = json.loads(pdj("postmortem", "demo", "-o", "json"))
    (attempt,) = record["attempts"]
    assert attempt["failure"]["pod"] == "demo-worker-1"
    assert attempt["ranks"][0]["rank"] == "worker-1"
    assert attempt["ranks"][0]["text"] == f"loading data\n{EVIL}"

    assert pdj("postmortem", "demo") == "wrote demo.html\n"
    page = (tmp_path / "demo.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page

    fail(real, "next", "again")
    eventually(lambda: records(real) == ["next"])
