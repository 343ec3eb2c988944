"""Jobs of Kubeflow become ours: every field comes over or is reported, and the result is valid and runs."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from paddlejob.cli.main import main
from paddlejob.client import manifest as manifests
from paddlejob.kubeflow import Level, convert, differences
from simkube.build import JobBuilder
from simkube.kubelet.outcomes import exit_soon
from simkube.volcano import Volcano
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

CORPUS = {path.stem: path for path in (Path(__file__).parent / "corpus").glob("*.yaml")}
FIELDS = {
    "spec.runPolicy.cleanPodPolicy": "All",
    "spec.runPolicy.ttlSecondsAfterFinished": 60,
    "spec.runPolicy.activeDeadlineSeconds": 60,
    "spec.runPolicy.backoffLimit": 7,
    "spec.runPolicy.suspend": True,
    "spec.runPolicy.managedBy": "kueue.x-k8s.io/multikueue",
    "spec.runPolicy.schedulingPolicy.minAvailable": 1,
    "spec.runPolicy.schedulingPolicy.queue": "q",
    "spec.runPolicy.schedulingPolicy.minResources": {"cpu": "1"},
    "spec.runPolicy.schedulingPolicy.priorityClass": "high",
    "spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds": 10,
    "spec.elasticPolicy.minReplicas": 1,
    "spec.elasticPolicy.maxReplicas": 3,
    "spec.elasticPolicy.maxRestarts": 3,
    "spec.elasticPolicy.metrics": [{"type": "Resource"}],
    "spec.paddleReplicaSpecs.Worker.replicas": 3,
    "spec.paddleReplicaSpecs.Worker.restartPolicy": "Never",
    "spec.paddleReplicaSpecs.Worker.template": {
        "spec": {"containers": [{"name": "paddle", "image": "other"}]}
    },
    "spec.paddleReplicaSpecs.Master": {
        "template": {"spec": {"containers": [{"name": "paddle", "image": "i"}]}}
    },
}
"""All that kubeflow.org/v1 has."""


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load(CORPUS[name].read_text())


def set_field(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for each in parents:
        document = document.setdefault(each, {})
    document[last] = value


def test_the_corpus_uses_every_field():
    def paths(value: Any, path: str) -> set[str]:
        below = (
            [paths(each, f"{path}.{key}") for key, each in value.items()] if isinstance(value, dict) else []
        )
        return {path}.union(*below)

    used = set().union(*(paths(read(name)["spec"], "spec") for name in CORPUS))
    assert FIELDS.keys() - used == set()


@pytest.mark.parametrize("path", FIELDS)
def test_a_field_comes_over_or_is_reported(path):
    plain = read("collective")
    changed = copy.deepcopy(plain)
    set_field(changed, path, FIELDS[path])
    before, after = convert(plain), convert(changed)
    reported = {finding.field for finding in set(after.findings) - set(before.findings)}
    assert after.manifest != before.manifest or any(path.rpartition(".")[2] in field for field in reported)


@pytest.mark.parametrize(
    "path",
    [
        "metadata.more",
        "spec.more",
        "spec.elasticPolicy.more",
        "spec.paddleReplicaSpecs.Launcher",
        "spec.paddleReplicaSpecs.Worker.more",
        "spec.runPolicy.more",
        "spec.runPolicy.schedulingPolicy.more",
    ],
)
def test_what_nobody_knows_is_not_dropped_in_silence(path):
    document = read("collective")
    set_field(document, path, {"a": 1})
    [finding] = [each for each in convert(document).findings if each.level is Level.LOST]
    assert finding.field.endswith(path.rpartition(".")[2])
    assert finding.text == "unknown field of kubeflow.org/v1, left out"


@pytest.mark.parametrize("name", CORPUS)
def test_what_comes_out_is_valid(name):
    for elastic in (False, True):
        assert manifests.problems(convert(read(name), elastic=elastic).manifest) == []


@pytest.mark.parametrize("name", sorted(CORPUS))
@simulated
async def test_what_comes_out_runs_to_its_end(name):
    manifest = convert(read(name)).manifest
    manifest["metadata"].setdefault("name", "single")
    manifest["metadata"].pop("labels", None)  # there is no queue here
    cluster = SimulatedCluster(behaviour=exit_soon)
    cluster.volcano = Volcano(cluster.client_of("volcano"), capacity={"cpu": "8", "memory": "16Gi"})
    async with cluster.running("volcano"):
        built = JobBuilder()
        built.manifest = manifest
        cluster.submit(built)
        await cluster.until_phase("Completed", manifest["metadata"]["name"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, {"cleanPodPolicy": "Never"}, id="pods stay by default"),
        pytest.param({"runPolicy.cleanPodPolicy": "All"}, {"cleanPodPolicy": "Always"}, id="All"),
        pytest.param(
            {"runPolicy.cleanPodPolicy": "Running"}, {"cleanPodPolicy": "OnCompletion"}, id="Running"
        ),
        pytest.param({"runPolicy.backoffLimit": 7}, {"backoffLimit": 7}, id="backoffLimit"),
        pytest.param({"paddleReplicaSpecs.Worker.restartPolicy": "Never"}, {"backoffLimit": 0}, id="Never"),
        pytest.param(
            {"paddleReplicaSpecs.Worker.restartPolicy": "ExitCode"}, {"backoffLimit": 1000}, id="ExitCode"
        ),
        pytest.param({"elasticPolicy.minReplicas": 1}, {}, id="elastic, which is not asked for"),
    ],
)
def test_policies(changes, expected):
    document = read("collective")
    for path, value in changes.items():
        set_field(document, f"spec.{path}", value)
    spec = convert(document).manifest["spec"]
    assert {key: value for key, value in spec.items() if key != "worker"} == {
        "cleanPodPolicy": "Never"
    } | expected
    assert spec["worker"].keys() == {"replicas", "template"}


def test_an_elastic_policy_is_live_when_asked_for():
    spec = convert(read("everything"), elastic=True).manifest["spec"]
    assert (spec["elastic"], spec["worker"]["requests"], spec["worker"]["limits"]) == (1, 2, 4)


def test_the_training_container_comes_first_and_the_template_is_kept():
    source, result = read("everything"), convert(read("everything")).manifest
    before = source["spec"]["paddleReplicaSpecs"]["Worker"]["template"]
    after = result["spec"]["worker"]["template"]
    assert [each["name"] for each in after["spec"]["containers"]] == ["paddle", "sidecar"]
    assert sorted(after["spec"].pop("containers"), key=str) == sorted(
        before["spec"].pop("containers"), key=str
    )
    assert (before["spec"].pop("restartPolicy"), after["spec"].pop("restartPolicy")) == ("Never", "OnFailure")
    assert after == before
    assert result["metadata"] == {
        "name": "everything",
        "namespace": "default",
        "labels": {"team": "vision"},
        "annotations": {"note": "kept"},
    }


def test_names_and_variables_that_only_kubeflow_has_are_reported():
    result = convert(read("parameter-servers"))
    said = "\n".join(map(str, result.findings))
    assert "the templates name servers-master-N, which is servers-ps-N here; change them" in said
    assert "lost: spec.worker.template: uses PADDLE_TRAINER_NUM, which is not set here" in said
    assert "changed: spec.ps.template: starts paddle.distributed.launch" in said
    assert result.manifest["spec"]["intranet"] == "Service"
    assert result.manifest["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "training"}


def test_the_difference_of_the_environments():
    source = read("parameter-servers")
    found = {
        pod: {each.variable: (each.kubeflow, each.here) for each in differing}
        for pod, differing in differences(source, convert(source).manifest)
    }
    assert list(found) == ["servers-ps-0", "servers-ps-1", "servers-worker-0", "servers-worker-1"]
    assert found["servers-ps-0"]["PADDLE_MASTER"] == ("<IP of servers-master-0>:37777", None)
    assert found["servers-ps-1"]["PADDLE_MASTER"] == ("servers-master-0:37777", None)
    assert found["servers-ps-1"]["PADDLE_SERVER_NUM"] == ("1", None)
    assert found["servers-worker-1"]["PADDLE_TRAINER_NUM"] == ("1", None)
    assert found["servers-worker-1"]["PADDLE_NNODES"] == ("5", None)
    assert found["servers-worker-1"]["PADDLE_TRAINER_ID"] == (None, "1")
    assert found["servers-worker-0"]["PADDLE_PSERVERS_IP_PORT_LIST"] == (
        None,
        "servers-ps-0.default:36000,servers-ps-1.default:36000",
    )


def test_the_command_prints_jobs_and_the_report(tmp_path):
    file = tmp_path / "jobs.yaml"
    beside = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}}
    file.write_text(CORPUS["collective"].read_text() + "---\n" + yaml.safe_dump(beside))
    done = CliRunner().invoke(main, ["convert", "-f", str(file)])
    assert done.exit_code == 0, done.output
    job, other = yaml.safe_load_all(done.stdout)
    assert (job, other) == (convert(read("collective")).manifest, beside)
    assert "  note: spec.paddleReplicaSpecs.Worker.restartPolicy: OnFailure is kept" in done.stderr
    assert "  environment of collective-worker-0:\n    + PADDLEJOB_ATTEMPT=0\n" in done.stderr
    assert "    - POD_IP_DUMMY=<IP of collective-worker-0>\n" in done.stderr
    quiet = CliRunner().invoke(main, ["convert", "--quiet", str(file)])
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")
    # What is ours already comes out as it is.
    again = CliRunner().invoke(main, ["convert", "-"], input=done.stdout)
    assert (again.stdout, again.stderr) == (done.stdout, "")


def test_a_job_that_would_be_invalid_is_an_error(tmp_path):
    document = read("collective")
    document["spec"]["paddleReplicaSpecs"]["Worker"]["replicas"] = 0
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(document))
    done = CliRunner().invoke(main, ["convert", str(file)])
    assert done.exit_code == 1
    assert "error: collective: spec.worker" in done.stderr
    missing = CliRunner().invoke(main, ["convert", "missing.yaml"])
    assert (missing.exit_code, missing.stderr) == (
        2,
        "error: cannot read missing.yaml: No such file or directory\n",
    )


def test_both_guides_show_the_report_as_it_is():
    result = convert(read("parameter-servers"))
    differing = dict(differences(read("parameter-servers"), result.manifest))["servers-worker-1"]
    said = {f"  {each}" for each in result.findings} | {f"    {each}" for each in differing}
    for name in ("kubeflow.md", "kubeflow.zh-CN.md"):
        text = (Path(__file__).parents[2] / "docs" / name).read_text()
        shown = re.findall(r"^  .*(?:lost|changed): .*$|^    [~+-] .*$", text, re.MULTILINE)
        assert len(shown) == 5
        assert set(shown) <= said
