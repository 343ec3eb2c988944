"""`kubectl pdj import` on a real API server: theirs is suspended, and ours takes over its name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from click.testing import CliRunner, Result

from apiserver.real_cluster import RealCluster
from apiserver.test_crd import open_crd
from devcluster import ApiError, Cluster, ControlPlane
from paddlejob.cli.kubectl import group
from tests.kubeflow.test_convert import read
from tests.support.waiting import eventually

pytestmark = pytest.mark.apiserver
HERE = Path(__file__).parent
CRD = HERE.parents[1] / "deploy" / "v1" / "crd.yaml"
LABEL = "training.kubeflow.org/job-name"


@pytest.fixture(scope="module")
def plane() -> Iterator[Cluster]:
    """A cluster of its own: others look for paddlejobs by this word."""
    with ControlPlane.start() as started:
        started.apply(CRD, HERE / "definition.yaml", open_crd("kueue.x-k8s.io", "v1beta1", "Workload"))
        yield started


@pytest.fixture
def real(plane: Cluster) -> Iterator[RealCluster]:
    name = plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}})["metadata"][
        "name"
    ]
    plane.await_found(f"/api/v1/namespaces/{name}/serviceaccounts/default")
    with RealCluster(plane, name).running() as cluster:
        yield cluster


@pytest.fixture
def pdj(real: RealCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    monkeypatch.setenv("KUBECONFIG", str(real.cluster.kubeconfig))
    monkeypatch.setenv("HOME", str(tmp_path))
    return lambda verb, *arguments: CliRunner().invoke(group, [verb, "-n", real.namespace, *arguments])


def pods_of(job: dict[str, Any]) -> list[str]:
    """Return the pods that Kubeflow makes of a job."""
    return [
        f"{job['metadata']['name']}-{kind.lower()}-{index}"
        for kind, spec in job["spec"]["paddleReplicaSpecs"].items()
        for index in range(spec.get("replicas", 1))
    ]


class Kubeflow:
    """What Kubeflow's training operator does with a job: pods while it is not suspended, none while it is."""

    def __init__(self, real: RealCluster) -> None:
        self._cluster, self._namespace = real.cluster, real.namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def path(self, *name: str) -> str:
        return "/".join([f"/apis/kubeflow.org/v1/namespaces/{self._namespace}/paddlejobs", *name])

    def pods(self, name: str) -> list[str]:
        listed = self._cluster.request("GET", f"{self._pods}?labelSelector={LABEL}={name}")
        return sorted(each["metadata"]["name"] for each in listed["items"])

    def is_running(self, name: str) -> bool:
        """Tell whether all its pods run, so that what becomes of later ones can be chosen."""
        listed = self._cluster.request("GET", f"{self._pods}?labelSelector={LABEL}={name}")["items"]
        return [each["status"].get("phase") for each in listed] == ["Running"] * len(pods_of(self.get(name)))

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        body["metadata"] = {
            key: body["metadata"][key] for key in ("name", "labels") if key in body["metadata"]
        }
        return self._cluster.request("POST", f"{self.path()}?fieldValidation=Strict", body)

    def get(self, name: str) -> dict[str, Any]:
        return self._cluster.request("GET", self.path(name))

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/pods"

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for job in self._cluster.request("GET", self.path())["items"]:
                self._reconcile(job)

    def _reconcile(self, job: dict[str, Any]) -> None:
        name = job["metadata"]["name"]
        existing = self.pods(name)
        if job["spec"].get("runPolicy", {}).get("suspend"):
            for each in existing:
                self._ignoring(404, "DELETE", f"{self._pods}/{each}")
            return
        for pod in pods_of(job):
            if pod not in existing:
                container = {"name": "paddle", "image": "mirror/train:1"}
                body = {
                    "metadata": {"name": pod, "labels": {LABEL: name}},
                    "spec": {"containers": [container]},
                }
                self._ignoring(409, "POST", self._pods, body)

    def _ignoring(self, code: int, *request: Any) -> None:
        try:
            self._cluster.request(*request)
        except ApiError as error:
            if error.code != code:
                raise


@pytest.fixture
def kubeflow(real: RealCluster) -> Iterator[Kubeflow]:
    with Kubeflow(real) as running:
        yield running


def test_a_running_job_is_moved_under_its_name(real, kubeflow, pdj):
    created = kubeflow.create(read("everything"))
    eventually(lambda: kubeflow.pods("everything") == ["everything-worker-0", "everything-worker-1"])
    looked = pdj("import", "everything", "--dry-run")
    assert (looked.exit_code, looked.stdout) == (
        0,
        "paddlejob.batch.paddlepaddle.org/everything would be imported\n",
    )
    assert "  lost: spec.elasticPolicy.metrics: " in looked.stderr
    assert kubeflow.pods("everything") != []
    done = pdj("import", "everything")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "paddlejob.kubeflow.org/everything suspended"
    assert kubeflow.get("everything")["spec"]["runPolicy"]["suspend"] is True
    assert kubeflow.pods("everything") == []
    [ours] = yaml.safe_load(pdj("get", "-o", "yaml").stdout)["items"]
    assert ours["metadata"]["name"] == "everything"
    assert (
        ours["metadata"]["annotations"]["batch.paddlepaddle.org/imported-from"] == created["metadata"]["uid"]
    )
    again = pdj("import", "everything")
    assert (again.exit_code, "already exists" in again.stderr) == (2, True)


def test_all_jobs_of_a_namespace_are_moved_and_complete(real, kubeflow, pdj):
    jobs = [read(name) for name in ("collective", "never", "always", "single", "parameter-servers")]
    for body in jobs:
        body["metadata"] = {"name": body["metadata"].get("name", "single")}  # there is no queue here
        kubeflow.create(body)
    for body in jobs:
        eventually(lambda body=body: kubeflow.is_running(body["metadata"]["name"]))
    pods = [pod for body in jobs for pod in pods_of(body) if "-worker-" in pod]
    for pod in pods:
        real.hold(pod)
    done = pdj("import", "--all")
    assert done.exit_code == 0, done.output
    for pod in pods:
        real.let_go(pod)
    waited = pdj("wait", *(body["metadata"]["name"] for body in jobs), "--timeout=60s")
    assert waited.exit_code == 0, waited.output
    again = pdj("import", "--all")
    nothing = f"no PaddleJobs of kubeflow.org/v1 to import in namespace {real.namespace}\n"
    assert (again.exit_code, again.output) == (0, nothing)


def test_a_job_in_a_queue_of_kueue_is_taken_from_it_first(real, kubeflow, pdj):
    document = read("collective")
    document["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "training"}
    document["spec"]["runPolicy"] = {"suspend": True}
    uid = kubeflow.create(document)["metadata"]["uid"]
    workloads = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{real.namespace}/workloads"
    metadata = {"name": "theirs", "labels": {"kueue.x-k8s.io/job-uid": uid}}
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": metadata,
        "spec": {"active": True},
    }
    real.cluster.request("POST", workloads, body)
    done = pdj("import", "collective")
    assert done.exit_code == 0, done.output
    assert real.cluster.request("GET", f"{workloads}/theirs")["spec"] == {"active": False}
    [ours] = yaml.safe_load(pdj("get", "-o", "yaml").stdout)["items"]
    assert ours["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "training"}
    assert "suspend" not in ours["spec"]


def test_theirs_is_resumed_when_its_pods_do_not_end(real, pdj):
    kubeflow = Kubeflow(real)  # which is not running
    kubeflow.create(read("collective"))
    pods = f"/api/v1/namespaces/{real.namespace}/pods"
    container = {"name": "paddle", "image": "mirror/train:1"}
    body = {
        "metadata": {"name": "collective-worker-0", "labels": {LABEL: "collective"}},
        "spec": {"containers": [container]},
    }
    real.cluster.request("POST", pods, body)
    failed = pdj("import", "collective", "--timeout=1s")
    assert failed.exit_code == 124
    assert "error: pods of collective are left after 1s: collective-worker-0; is Kubeflow's" in failed.stderr
    assert failed.stdout.splitlines()[-1] == "paddlejob.kubeflow.org/collective resumed"
    assert kubeflow.get("collective")["spec"]["runPolicy"]["suspend"] is False
    assert yaml.safe_load(pdj("get", "-o", "yaml").stdout)["items"] == []


def test_what_cannot_be_moved_is_said(real, kubeflow, pdj):
    missing = pdj("import", "missing")
    assert (missing.exit_code, missing.stderr) == (
        2, f"error: there is no PaddleJob missing of kubeflow.org/v1 in namespace {real.namespace}\n",
    )  # fmt: skip
    kubeflow.create(read("never"))
    status = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    real.cluster.request(
        "PATCH", f"{kubeflow.path('never')}/status", status, content_type="application/merge-patch+json"
    )
    ended = pdj("import", "never")
    assert (
        ended.stderr == "error: PaddleJob never of kubeflow.org/v1 has succeeded: there is nothing to move\n"
    )
    assert pdj("import", "--all").exit_code == 0
    assert "give names of jobs, or --all" in pdj("import").stderr
