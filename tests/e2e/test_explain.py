"""What is said of pods that a real kubelet cannot start or that fail; the commands are run as printed."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys

import pytest

from devcluster import Cluster
from e2e.images import WIDE_AND_DEEP
from e2e.jobs import Body, Job, Space, collective, templates
from paddlejob.client.explain import Advice, Explanation, explain_job
from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from tests.support.waiting import eventually

PLUGIN = (sys.executable, "-c", "from paddlejob.cli.kubectl import main; main()")
HOG = "x = bytearray(120 * 2**20); print(len(x))"
NO_IMAGE = "registry.baidubce.com/paddle-operator/no-such-image:v1"


def explained(job: Job, cause: str) -> Explanation:
    """Wait until a job is explained by a cause."""

    async def ask() -> Explanation:
        async with Client(HttpTransport(load_config(job.space.cluster.kubeconfig))) as client:
            return await explain_job(client, job.space.name, job.name)

    found: list[Explanation] = []

    def says_so() -> bool:
        found.append(asyncio.run(ask()))
        return found[-1].cause == cause

    eventually(says_so, within_seconds=90, says=lambda: found[-1])
    return found[-1]


def follow(job: Job, advice: Advice) -> None:
    """Run the commands of an advice, as they are printed."""
    commands = advice.commands(job.space.name, job.name)
    assert commands
    for command in commands:
        run(job.space.cluster, *shlex.split(command))


def run(cluster: Cluster, kubectl: str, *words: str) -> str:
    assert kubectl == "kubectl"
    if words[0] != "pdj":
        return cluster.kubectl(*words)
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run([*PLUGIN, *words[1:]], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def submitted(space: Space, body: Body, **container: object) -> Job:
    for template in templates(body):
        template["containers"][0].update(container)
    return space.submit(body)


def test_a_program_that_fails_is_quoted(space: Space) -> None:
    job = submitted(space, collective("broken", WIDE_AND_DEEP, ["python3", "-c", "import no_such_module"]))
    found = explained(job, "Error")
    assert (found.rank, found.exit_code) == ("worker-0", 1)
    assert found.log[0] == "Traceback (most recent call last):"
    assert found.log[-1] == "ModuleNotFoundError: No module named 'no_such_module'"
    assert found.advice[0].text == "install the Python module no_such_module in the image"


def test_a_program_that_is_not_there(space: Space) -> None:
    job = submitted(space, collective("absent", WIDE_AND_DEEP, ["no-such-program"]))
    found = explained(job, "StartError")
    assert "its container could not be started" in "\n".join(found.findings[0].details)
    assert found.advice[0].text.startswith("correct command and args in spec.worker.template")


def test_more_memory_is_enough_for_a_retry(space: Space) -> None:
    body = collective("hungry", WIDE_AND_DEEP, ["python3", "-c", HOG], backoffLimit=0)
    job = submitted(space, body, resources={"limits": {"memory": "100Mi"}})
    found = explained(job, "OOMKilled")
    assert found.summary.startswith("worker-0 exited with code 137 (OOMKilled)")
    assert found.advice[0].text.endswith("resources.limits.memory from 100Mi to 200Mi")
    follow(job, found.advice[0])
    eventually(lambda: len(space.table()) == 3, says=space.table)
    (again,) = (name for name, *_ in space.table()[1:] if name != job.name)
    Job(space, again).await_phase("Completed")


def test_an_image_that_does_not_exist(space: Space) -> None:
    job = submitted(space, collective("wrong", NO_IMAGE, ["true"]))
    found = explained(job, "ImagePull")
    assert found.summary.startswith(f"worker-0 cannot pull image {NO_IMAGE}: ")
    assert found.rank == "worker-0"
    assert found.advice[0].text.endswith("then suspend and resume the job")
    image = {"op": "replace", "path": "/spec/worker/template/spec/containers/0/image", "value": WIDE_AND_DEEP}
    space.cluster.kubectl(
        "-n", space.name, "patch", "pdj", job.name, "--type=json", "-p", json.dumps([image])
    )
    for words in (("suspend",), ("wait", "--for=suspended"), ("resume",)):
        run(space.cluster, "kubectl", "pdj", "-n", space.name, words[0], job.name, *words[1:])
    job.await_phase("Completed")


@pytest.mark.parametrize("kind", ["configMap", "secret"])
def test_a_volume_that_does_not_exist(space: Space, kind: str) -> None:
    body = collective("mounts", WIDE_AND_DEEP, ["true"])
    source = {"configMap": {"name": "settings"}, "secret": {"secretName": "settings"}}[kind]
    for template in templates(body):
        template["volumes"] = [{"name": "settings", kind: source}]
        template["containers"][0]["volumeMounts"] = [{"name": "settings", "mountPath": "/settings"}]
    job = space.submit(body)
    written = {"configMap": "ConfigMap", "secret": "Secret"}[kind]
    found = explained(job, f"{written}NotFound")
    assert found.summary == f"worker-0 needs {written} settings, which does not exist"
    space.create({"apiVersion": "v1", "kind": written, "metadata": {"name": "settings"}})
    job.await_phase("Completed", within_seconds=180)


def test_a_job_too_large_for_the_node_is_made_to_fit_by_the_commands_that_are_printed(space: Space) -> None:
    body = collective("large", WIDE_AND_DEEP, ["true"])
    job = submitted(space, body, resources={"requests": {"cpu": "200"}})
    found = explained(job, "NodeTooSmall")
    assert found.summary.startswith("no node has cpu 200 for a worker: the largest has ")
    follow(job, found.advice[0])
    job.await_phase("Completed")
