"""The examples mean what their comments say; a real API server and a real node are shown them elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from paddlejob.api.defaulting import aliases, effective
from paddlejob.api.v1 import CleanPodPolicy, Intranet, Mode, PaddleJob, Role
from paddlejob.api.validation import validate
from paddlejob.core.attempts.elastic import WorkerRange, worker_range
from paddlejob.core.gang.choose import scheduler_names

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "deploy" / "examples"
PROMISED = {
    "wide_and_deep": (Mode.PS, Intranet.POD_IP, CleanPodPolicy.NEVER),
    "wide_and_deep_podip": (Mode.PS, Intranet.POD_IP, CleanPodPolicy.ON_COMPLETION),
    "wide_and_deep_service": (Mode.PS, Intranet.SERVICE, CleanPodPolicy.ON_COMPLETION),
    "wide_and_deep_volcano": (Mode.PS, Intranet.POD_IP, CleanPodPolicy.NEVER),
    "resnet": (Mode.COLLECTIVE, Intranet.POD_IP, CleanPodPolicy.NEVER),
    "data_demo": (Mode.PS, Intranet.POD_IP, CleanPodPolicy.ON_COMPLETION),
    "elastic": (Mode.COLLECTIVE, Intranet.POD_IP, CleanPodPolicy.ON_COMPLETION),
}


def documents(path: Path) -> list[dict]:
    return list(yaml.safe_load_all(path.read_text()))


def job(name: str) -> PaddleJob:
    return msgspec.convert(documents(EXAMPLES / f"{name}.yaml")[0], PaddleJob)


@pytest.mark.parametrize("name", PROMISED)
def test_an_example_is_valid_and_spelled_right(name):
    assert validate(job(name)) == ()
    assert not list(aliases(job(name).spec))


@pytest.mark.parametrize("name", PROMISED)
def test_an_example_is_what_its_name_promises(name):
    meant = effective(job(name).spec)
    assert (meant.mode, meant.intranet, meant.clean_pod_policy) == PROMISED[name]


def test_the_volcano_example_has_a_group_of_the_jobs_name_and_size():
    (submitted, group), meant = (
        documents(EXAMPLES / "wide_and_deep_volcano.yaml"),
        job("wide_and_deep_volcano"),
    )
    assert group["metadata"]["name"] == submitted["metadata"]["name"]
    assert group["spec"]["minMember"] == sum(role.replicas for _, role in meant.spec.roles())
    assert scheduler_names(meant) == {Role.WORKER: "volcano"}


def test_the_elastic_example_has_bounds():
    assert worker_range(job("elastic").spec) == WorkerRange(least=1, most=4)


@pytest.mark.parametrize("name", ["data_demo", "elastic"])
def test_an_example_mounts_the_claim_that_is_shipped_with_it(name):
    volume, claim = documents(EXAMPLES / "pv-pvc.yaml")
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    used = job(name).spec.worker.template["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert used == claim["metadata"]["name"]


def test_the_program_on_a_volume_is_the_same_job_on_a_laptop():
    [on_a_laptop] = documents(ROOT / "examples" / "data_demo" / "data_demo.yaml")
    [on_a_cluster] = documents(EXAMPLES / "data_demo.yaml")
    assert on_a_laptop == on_a_cluster


LLM = sorted(
    path for path in (ROOT / "examples" / "llm").glob("*.yaml") if "kind: PaddleJob" in path.read_text()
)


@pytest.mark.parametrize("path", LLM, ids=lambda path: path.stem)
def test_a_job_for_language_models_is_valid_and_mounts_the_config_map_in_its_file(path):
    *config_maps, last = documents(path)
    submitted = msgspec.convert(last, PaddleJob)
    assert validate(submitted) == ()
    assert not list(aliases(submitted.spec))
    mounted = [
        volume["configMap"]["name"]
        for volume in submitted.spec.worker.template["spec"]["volumes"]
        if "configMap" in volume
    ]
    assert mounted == [each["metadata"]["name"] for each in config_maps]
    # The operator owns the ConfigMap with the name of the job.
    assert submitted.metadata.name not in mounted


def test_the_image_for_language_models_has_the_files_of_the_small_job():
    directory = ROOT / "examples" / "llm"
    container = documents(directory / "tiny.yaml")[-1]["spec"]["worker"]["template"]["spec"]["containers"][0]
    (copied,) = re.findall(r"^COPY (.*) \./$", (directory / "Dockerfile.gpu").read_text(), re.MULTILINE)
    assert copied.split() == re.findall(r"\w+\.(?:py|yaml)\b", container["args"][0])
