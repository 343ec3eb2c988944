"""The CRD as a real API server and a real kubectl understand it."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from devcluster import ApiError, Cluster
from paddlejob.api.crd.definition import crd_v1
from simkube.build import JobBuilder, job
from tests.api.bad_jobs import BAD_JOBS, BadJob
from tests.api.bad_pods import BAD_PODS
from tests.api.good_jobs import GOOD_JOBS
from tests.documents import files
from tests.support.waiting import eventually

CRD_FILE = files.HERE.parent.parent / "deploy/v1/crd.yaml"
PATH = "/apis/batch.paddlepaddle.org/v1/namespaces/default/paddlejobs"
BAD = [*BAD_JOBS, *BAD_PODS]
SHOWN_IN_A_DOCUMENT = ("001-design-3-service", "001-design-4-pod", "001-design-5-pod")
SUBMITTED = {name: read for name, read in files.manifests().items() if name not in SHOWN_IN_A_DOCUMENT}


def open_crd(group: str, version: str, kind: str) -> dict[str, Any]:
    """A definition that accepts anything, for kinds of others that the documents use."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": anything}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.fixture(scope="session")
def cluster(control_plane: Cluster) -> Cluster:
    """The control plane with PaddleJob, and with a stand-in for Volcano's PodGroup."""
    podgroups = open_crd("scheduling.volcano.sh", "v1beta1", "PodGroup")
    control_plane.apply(yaml.safe_load(CRD_FILE.read_text()), podgroups)
    return control_plane


def submit(cluster: Cluster, builder: JobBuilder, *, path: str = PATH, dry: bool = True) -> dict[str, Any]:
    manifest = copy.deepcopy(builder.manifest)
    manifest["metadata"] = {"name": manifest["metadata"]["name"]}
    options = "?fieldValidation=Strict" + ("&dryRun=All" if dry else "")
    answer: dict[str, Any] = cluster.request("POST", path + options, manifest)
    return answer


def merge(cluster: Cluster, path: str, patch: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = cluster.request(
        "PATCH", path, patch, content_type="application/merge-patch+json"
    )
    return answer


def refusal(cluster: Cluster, builder: JobBuilder) -> str:
    with pytest.raises(ApiError) as refused:
        submit(cluster, builder)
    return str(json.loads(str(refused.value).partition(": ")[2])["message"])


class Stored(NamedTuple):
    path: str
    namespace: str


@pytest.fixture
def stored(cluster: Cluster, namespace: str) -> Iterator[Stored]:
    """A job with the status that the documents show."""
    path = PATH.replace("/default/", f"/{namespace}/")
    submit(cluster, job("wide").ps(2).worker(2), path=path, dry=False)
    workers = {"ready": "0/2", "replicas": 2, "succeeded": 2}
    status = {
        "phase": "Completed",
        "mode": "PS",
        "reason": "WorkersSucceeded",
        "message": "all workers ended well",
        "ps": {"ready": "2/2", "replicas": 2},
        "worker": workers,
        "selector": "batch.paddlepaddle.org/job-name=wide",
        "conditions": [{"type": "Completed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    merge(cluster, f"{path}/wide/status?fieldValidation=Strict", {"status": status})
    yield Stored(f"{path}/wide", namespace)
    cluster.request("DELETE", f"{path}/wide")


@pytest.mark.parametrize("name", SUBMITTED)
@pytest.mark.usefixtures("kubectl")
def test_kubectl_creates_every_manifest_of_the_documents(cluster: Cluster, name: str) -> None:
    text = (files.HERE / f"{name}.yaml").read_text().replace(files.PLACEHOLDER, "registry.example.org/me")
    said = cluster.kubectl("create", "--validate=strict", "--dry-run=server", "-f", "-", stdin=text)
    assert said.count("created (server dry run)") == len(SUBMITTED[name])


@pytest.mark.parametrize("good", GOOD_JOBS.values(), ids=GOOD_JOBS)
def test_accepts(cluster: Cluster, good: JobBuilder) -> None:
    assert submit(cluster, good)["metadata"]["uid"]


@pytest.mark.parametrize("bad", [bad for bad in BAD if bad.server], ids=lambda bad: bad.case)
def test_refuses(cluster: Cluster, bad: BadJob) -> None:
    assert bad.server is not None
    assert bad.server in refusal(cluster, bad.job)


@pytest.mark.parametrize("bad", [bad for bad in BAD if not bad.server], ids=lambda bad: bad.case)
def test_leaves_to_the_operator(cluster: Cluster, bad: BadJob) -> None:
    assert submit(cluster, bad.job)["metadata"]["uid"]


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        pytest.param(job().worker().spec(workers={}), 'unknown field "spec.workers"', id="a role"),
        pytest.param(
            job().worker().spec(cleanPodPolcy="Never"), 'unknown field "spec.cleanPodPolcy"', id="a field"
        ),
        pytest.param(
            job().spec(worker={"template": {"sepc": {}}}),
            'unknown field "spec.worker.template.sepc"',
            id="spec",
        ),
    ],
)
def test_a_typo_is_named(cluster: Cluster, builder: JobBuilder, words: str) -> None:
    assert words in refusal(cluster, builder)


@pytest.mark.usefixtures("kubectl")
def test_kubectl_prints_the_columns_of_the_documents(cluster: Cluster, stored: Stored) -> None:
    header, row = cluster.kubectl("get", "pdj", "-n", stored.namespace).splitlines()
    assert header.split() == ["NAME", "STATUS", "MODE", "PS", "WORKER", "AGE"]
    assert row.split()[:5] == ["wide", "Completed", "PS", "2/2", "0/2"]


@pytest.mark.usefixtures("kubectl")
def test_wide_output_says_why(cluster: Cluster, stored: Stored) -> None:
    header, row = cluster.kubectl("get", "pdj", "-n", stored.namespace, "-o", "wide").splitlines()
    assert header.split()[6:] == ["STEP", "LOSS", "ETA", "HETER", "REASON", "MESSAGE"]
    assert row.endswith("WorkersSucceeded   all workers ended well")


@pytest.mark.usefixtures("kubectl")
def test_kubectl_scales_the_workers(cluster: Cluster, stored: Stored) -> None:
    cluster.kubectl("scale", "pdj/wide", "-n", stored.namespace, "--replicas=3")
    scale = cluster.request("GET", f"{stored.path}/scale")
    assert scale["spec"]["replicas"] == 3
    assert scale["status"] == {"replicas": 2, "selector": "batch.paddlepaddle.org/job-name=wide"}


@pytest.mark.usefixtures("kubectl")
def test_scaling_is_held_to_the_rules(cluster: Cluster, stored: Stored) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        cluster.kubectl("scale", "pdj/wide", "-n", stored.namespace, "--replicas=0")
    assert "should be greater than or equal to 1" in refused.value.stderr


@pytest.mark.usefixtures("kubectl")
def test_kubectl_waits_for_a_condition(cluster: Cluster, stored: Stored) -> None:
    said = cluster.kubectl(
        "wait", "pdj/wide", "-n", stored.namespace, "--for=condition=Completed", "--timeout=5s"
    )
    assert "condition met" in said


@pytest.mark.usefixtures("kubectl")
def test_kubectl_explains_a_field(cluster: Cluster) -> None:
    assert "Gloo barriers" in cluster.kubectl("explain", "pdj.spec.withGloo")


def test_the_controller_of_a_job_stays(cluster: Cluster, namespace: str) -> None:
    path = PATH.replace("/default/", f"/{namespace}/")
    submit(cluster, job("shared").worker().spec(managedBy="example.org/ours"), path=path, dry=False)
    with pytest.raises(ApiError, match="field is immutable"):
        merge(cluster, f"{path}/shared", {"spec": {"managedBy": "example.org/theirs"}})


def test_defaults_are_written_down(cluster: Cluster) -> None:
    spec = submit(
        cluster, job().spec(worker={"template": job().worker().manifest["spec"]["worker"]["template"]})
    )["spec"]
    assert (spec["worker"]["replicas"], spec["intranet"]) == (1, "PodIP")


def test_a_template_passes_through_untouched(cluster: Cluster) -> None:
    pod = {
        "fromTheFuture": {"a": [1, {"b": None}]},
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
    }
    builder = job().worker(pod=pod, fromTheFuture="too", resources={"limits": {"nvidia.com/gpu": 1}})
    assert (
        submit(cluster, builder)["spec"]["worker"]["template"]
        == builder.manifest["spec"]["worker"]["template"]
    )


def test_a_job_that_is_older_than_the_rules_can_be_finished(cluster: Cluster, namespace: str) -> None:
    """Only what changes is held to a rule: an earlier operator's jobs get their status and are deleted."""
    group = f"{namespace}.example.org"
    path = f"/apis/{group}/v1/namespaces/{namespace}/paddlejobs"
    cluster.apply(open_crd(group, "v1", "PaddleJob"))
    odd = {"intranet": "Mesh", "cleanPodPolicy": "Sometimes", "worker": {"replicas": 0}}
    manifest = {"apiVersion": f"{group}/v1", "kind": "PaddleJob", "spec": odd, "metadata": {"name": "older"}}
    cluster.request("POST", path, manifest)
    rules = json.loads(json.dumps(crd_v1()).replace("batch.paddlepaddle.org", group))
    cluster.apply(rules)
    await_refusal(cluster, path, {**manifest, "metadata": {"name": "newer"}})
    merge(cluster, f"{path}/older", {"metadata": {"finalizers": None, "annotations": {"seen": "yes"}}})
    finished = merge(cluster, f"{path}/older/status", {"status": {"phase": "Completed"}})
    assert (finished["spec"]["intranet"], finished["status"]["phase"]) == ("Mesh", "Completed")


def await_refusal(cluster: Cluster, path: str, manifest: dict[str, Any]) -> None:
    """A changed definition takes effect a moment after it was accepted."""

    def is_refused() -> bool:
        try:
            cluster.request("POST", f"{path}?dryRun=All", manifest)
        except ApiError as error:
            if error.code != 422:
                raise
            return True
        return False

    eventually(is_refused)
