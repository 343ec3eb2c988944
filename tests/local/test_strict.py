"""Job files are checked as strictly as on a cluster."""

from __future__ import annotations

import pytest

from local.jobs import container, job, role, text
from paddlejob.local.errors import InputError
from paddlejob.local.input.documents import read

MAIN = "spec.worker.template.spec.containers[0]"


def worker(**fields):
    return job(worker=role(1, containers=[container("true", **fields)]))


def pod(**fields):
    return job(worker=role(1, **fields))


REFUSED = {
    "a misspelt field of a role": (
        job(worker={**role(1), "replica": 2}),
        "spec.worker.replica: Unknown field",
    ),
    "a field in lower case": (
        job(cleanpodpolicy="Always"),
        "spec.cleanpodpolicy: Unknown field; did you mean cleanPodPolicy?",
    ),
    "a misspelt role": (job(wroker=role(1)), "spec.wroker: Unknown field"),
    "something else": (job(nothing=1), "spec.nothing: Unknown field"),
    "a field beside the spec": ({**job(), "sepc": {}}, "sepc: Unknown field"),
    "misspelt labels": (
        {**job(), "metadata": {"name": "job", "lables": {}}},
        "metadata.lables: Unknown field; did you mean labels?",
    ),
    "envs": (worker(envs=[]), f"{MAIN}.envs: Unknown field; did you mean env?"),
    "comand": (worker(comand=["echo"]), f"{MAIN}.comand: Unknown field"),
    "volumeMount": (
        worker(volumeMount=[]),
        f"{MAIN}.volumeMount: Unknown field; did you mean volumeMounts?",
    ),
    "nodeSelecter": (
        pod(nodeSelecter={}),
        "spec.worker.template.spec.nodeSelecter: Unknown field; did you mean nodeSelector?",
    ),
    "a field of a volume": (
        pod(volumes=[{"name": "v", "emptyDir": {"size": "1Gi"}}]),
        "volumes[0].emptyDir.size: Unknown field; did you mean sizeLimit?",
    ),
    "a command that is text": (
        worker(command="echo hi"),
        f'{MAIN}.command: Invalid value: "echo hi": must be a list, such as [python, train.py]',
    ),
    "arguments that are text": (
        worker(args="--lr 0.1"),
        f'{MAIN}.args: Invalid value: "--lr 0.1": must be a list',
    ),
    "a word of the command that is a number": (
        worker(command=["sleep", 60]),
        f"{MAIN}.command[1]: Invalid value: 60: must be text; put it in quotes",
    ),
    "a count that is text": (
        job(worker=role("two")),
        'spec.worker.replicas: Invalid value: "two": must be a whole number',
    ),
    "a count that is true": (
        job(backoffLimit=True),
        "spec.backoffLimit: Invalid value: true: must be a whole number",
    ),
    "text for true": (pod(hostIPC="yes"), 'hostIPC: Invalid value: "yes": must be true or false'),
    "an amount that is none": (
        worker(resources={"limits": {"nvidia.com/gpu": "1.2.3"}}),
        f"{MAIN}.resources.limits[nvidia.com/gpu]",
    ),
    "a sidecar's amount": (
        pod(initContainers=[container("true", resources={"requests": {"memory": "lots"}})]),
        "initContainers[0].resources.requests[memory]",
    ),
    "labels that are a list": (
        pod(nodeSelector=["a"]),
        "nodeSelector: Invalid value: list: must be an object",
    ),
}


@pytest.mark.parametrize(("document", "sentence"), REFUSED.values(), ids=REFUSED)
def test_files_that_a_cluster_refuses_are_refused(document, sentence):
    with pytest.raises(InputError) as refusal:
        read(text(document))
    assert sentence in str(refusal.value)


ACCEPTED = {
    "an amount as a number": worker(resources={"limits": {"cpu": 2, "memory": "1Gi"}}),
    "a port by name or number": worker(readinessProbe={"httpGet": {"port": 80}}),
    "a sidecar's own restart policy": pod(initContainers=[container("true", restartPolicy="Always")]),
    "null for nothing": pod(volumes=None, nodeSelector=None),
    "null fields of the job": job(intranet=None, suspend=None, cleanPodPolicy=None, ps=None, elastic=None),
    "null fields of a role": job(worker={**role(2), "requests": None, "limits": None}),
    "null metadata": {**job(), "metadata": {"name": "job", "namespace": None, "labels": None}},
    "a null variable": worker(env=[{"name": "A", "value": None, "valueFrom": None}]),
    "a null label": {**job(), "metadata": {"name": "job", "labels": {"a": None}}},
    "selectors of any name": pod(nodeSelector={"a.b/c": "d"}),
}


@pytest.mark.parametrize("document", ACCEPTED.values(), ids=ACCEPTED)
def test_files_that_a_cluster_accepts_are_accepted(document):
    assert read(text(document)).job.spec.worker


def test_all_mistakes_are_reported_together():
    with pytest.raises(InputError) as refusal:
        read(text(job(worker={**role("two"), "replica": 1}, intranet="Nowhere", suspend="no")))
    assert len(refusal.value.sentences) == 3


def test_a_date_without_quotes_is_text_as_kubectl_reads_it():
    written = text(job(worker=role(1, nodeSelector={"day": "DAY"}))).replace('"DAY"', "2026-01-01")
    [(_, spec)] = read(written).job.spec.roles()
    assert spec.template["spec"]["nodeSelector"] == {"day": "2026-01-01"}
