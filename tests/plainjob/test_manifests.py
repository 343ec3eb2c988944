"""The example manifests fit each other and the code that reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from paddlejob.plainjob import errors
from paddlejob.plainjob.settings import read_settings

REPOSITORY = Path(__file__).parents[2]
JOB = REPOSITORY / "deploy" / "examples" / "job"


def documents(name):
    return list(yaml.safe_load_all((JOB / name).read_text()))


def environment(container):
    """The container's variables, as the kubelet would fill them in."""
    fields = {"metadata.namespace": "default", "metadata.name": "pod-a", "status.podIP": "10.0.0.1"}
    return {
        entry["name"]: entry["value"]
        if "value" in entry
        else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for entry in container["env"]
    }


@pytest.fixture
def data():
    return documents("data.yaml")[0]["spec"]


@pytest.fixture
def train():
    return documents("train.yaml")[0]["spec"]


def container(spec):
    return spec["template"]["spec"]["containers"][0]


def test_the_training_jobs_environment_is_accepted(train):
    settings = read_settings(environment(container(train)))
    assert (settings.namespace, settings.pod_ip) == ("default", "10.0.0.1")
    assert settings.job_name == documents("train.yaml")[0]["metadata"]["name"]


def test_shards_trainers_and_pods_are_as_many(data, train):
    settings = read_settings(environment(container(train)))
    shards = int(environment(container(data))["SPLIT_COUNT"])
    assert shards == settings.gradient_num == train["parallelism"] == train["completions"]


def mounts(spec):
    """Mount path of every claim."""
    volumes = spec["template"]["spec"]["volumes"]
    claims = {
        at["name"]: at["persistentVolumeClaim"]["claimName"]
        for at in volumes
        if "persistentVolumeClaim" in at
    }
    return {
        claims[at["name"]]: at["mountPath"] for at in container(spec)["volumeMounts"] if at["name"] in claims
    }


def test_the_data_job_writes_where_the_training_job_reads(data, train):
    written = Path(environment(container(data))["OUT_DIR"]).relative_to(mounts(data)["mfs"])
    read = read_settings(environment(container(train))).job_directory.relative_to(mounts(train)["mfs"])
    assert written == read


def test_the_scripts_are_where_the_training_job_looks(data, train):
    command = container(data)["command"]
    placed = Path(command[command.index("--config-dir") + 1]).name
    assert placed == read_settings(environment(container(train))).train_config_dir


def test_the_service_account_may_do_what_start_asks_and_no_more(train):
    account, role, binding = documents("rbac.yaml")
    assert {(rule["resources"][0], *rule["verbs"]) for rule in role["rules"]} == {
        ("pods", "list"),
        ("jobs", "get"),
    }
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": name} for name in (account["metadata"]["name"], "default")
    ]
    assert train["template"]["spec"]["serviceAccountName"] == account["metadata"]["name"]


def test_the_failure_policy_knows_our_exit_codes(train):
    by_action = {
        rule["action"]: rule["onExitCodes"]["values"]
        for rule in train["podFailurePolicy"]["rules"]
        if "onExitCodes" in rule
    }
    assert by_action == {
        "FailJob": [errors.DataError.exit_code, errors.SettingsError.exit_code],
        "Ignore": [errors.PeerFailedError.exit_code],
    }


def test_the_image_holds_what_the_manifests_call(data):
    dockerfile = (JOB / "Dockerfile").read_text()
    copied = {
        line.split()[2]: line.split()[1]
        for line in dockerfile.splitlines()
        if line.startswith("COPY examples")
    }
    download = data["template"]["spec"]["initContainers"][0]["command"][1]
    source = copied[str(Path(download).parent)]
    assert (REPOSITORY / source / Path(download).name).is_file()


@pytest.mark.parametrize("name", ["plain-job.md", "plain-job.zh-CN.md"])
@pytest.mark.parametrize("manifest", ["rbac.yaml", "data.yaml", "train.yaml"])
def test_the_documents_name_every_manifest(name, manifest):
    assert f"deploy/examples/job/{manifest}" in (REPOSITORY / "docs" / name).read_text()
