"""PaddleJobs of the shipped manifests on a real node: what to change in them, and how to follow them."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import yaml

from devcluster import ApiError, Cluster, ensure
from e2e.images import ROOT
from paddlejob.api import names
from tests.support.waiting import eventually

Body = dict[str, Any]
GROUP = "/apis/batch.paddlepaddle.org/v1"
LOSS = re.compile(r"epoch \d+ step \d+/\d+ loss ([\d.]+)")


def documents(path: str) -> list[Body]:
    """Give the documents of a shipped file."""
    return list(yaml.safe_load_all((ROOT / "deploy" / path).read_text()))


def example(name: str) -> Body:
    """Give the PaddleJob of deploy/examples."""
    (job,) = documents(f"examples/{name}.yaml")
    return job


def templates(job: Body) -> Iterator[Body]:
    """Give the pod templates' specs of all roles."""
    return (
        job["spec"][role]["template"]["spec"] for role in ("ps", "worker", "heter") if role in job["spec"]
    )


def with_environment(job: Body, values: Mapping[str, object]) -> Body:
    for template in templates(job):
        own = [{"name": name, "value": str(value)} for name, value in values.items()]
        template["containers"][0].setdefault("env", []).extend(own)
    return job


def without_gpu(job: Body) -> Body:
    """The node has none; what trains is the same."""
    for template in templates(job):
        template["containers"][0].pop("resources", None)
    return job


def collective(name: str, image: str, command: list[str], *, replicas: int = 1, **spec: Any) -> Body:
    """A job of workers that run a command."""
    container = {"name": "paddle", "image": image, "command": command}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    worker = {"replicas": replicas, "template": template}
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name},
        "spec": {"cleanPodPolicy": "Never", "worker": worker, **spec},
    }


def losses(log: list[str]) -> list[float]:
    """Give the losses in the order in which training printed them."""
    return [float(found[1]) for line in log if (found := LOSS.fullmatch(line))]


def result(log: list[str], measure: str) -> float:
    """Give what training says of itself in its last line."""
    (line,) = (line for line in log if line.startswith("done "))
    words = line.split()
    return float(words[words.index(measure) + 1])


class Space:
    """A namespace of the cluster."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def list(self, kind: str, selector: str = "") -> list[Body]:
        query = f"?labelSelector={selector}" if selector else ""
        items: list[Body] = self.cluster.request("GET", f"/api/v1/namespaces/{self.name}/{kind}{query}")[
            "items"
        ]
        return items

    def names(self, kind: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.list(kind)]

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.cluster.kubectl(f"--namespace={self.name}", *arguments, stdin=stdin)

    def create(self, *bodies: Body) -> None:
        self.kubectl("create", "--filename=-", stdin=yaml.safe_dump_all(bodies))

    def submit(self, body: Body) -> Job:
        """Create a PaddleJob."""
        self.cluster.request("POST", f"{GROUP}/namespaces/{self.name}/paddlejobs", body)
        return Job(self, body["metadata"]["name"])

    def table(self, *options: str) -> list[list[str]]:
        """Give `kubectl get pdj` as rows of words."""
        return [line.split() for line in self.kubectl("get", "pdj", *options).splitlines()]

    @contextmanager
    def followed(self, pod: str) -> Iterator[list[str]]:
        """Follow a pod's log while the block runs; its lines are there after it, when the pod may be gone."""
        program = ensure(["kubectl"], kubernetes=self.cluster.access.kubernetes)["kubectl"]
        command = [program, f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={self.name}"]
        lines: list[str] = []
        with tempfile.TemporaryFile("w+") as file:
            process = subprocess.Popen([*command, "logs", "--follow", pod], stdout=file, stderr=file)
            try:
                yield lines
                process.wait(timeout=30)
            finally:
                process.kill()
                process.wait()
            file.seek(0)
            lines += file.read().splitlines()


class Job:
    """A PaddleJob of a namespace."""

    def __init__(self, space: Space, name: str) -> None:
        self.space = space
        self.name = name
        self.submitted = time.monotonic()

    def body(self) -> Body:
        path = f"{GROUP}/namespaces/{self.space.name}/paddlejobs/{self.name}"
        found: Body = self.space.cluster.request("GET", path)
        return found

    def status(self) -> Body:
        return self.body().get("status", {})

    def exists(self) -> bool:
        try:
            self.body()
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def pods(self) -> list[Body]:
        return self.space.list("pods", f"{names.LABEL_JOB}={self.name}")

    def uids(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods()}

    def await_phase(self, phase: str, *, within_seconds: float = 60.0) -> Body:
        """Wait for a phase and give the status; a job that ends otherwise is not waited for."""

        def reached() -> Body | None:
            status = self.status()
            ended = status.get("phase") in ("Completed", "Failed")
            assert not ended or status["phase"] == phase, status
            return status if status.get("phase") == phase else None

        return eventually(reached, within_seconds=within_seconds, says=self.status)

    def await_message(self, pattern: str, *, within_seconds: float = 60.0) -> Body:
        """Wait until the status says something, and give it."""

        def said() -> Body | None:
            status = self.status()
            return status if re.search(pattern, status.get("message", "")) else None

        return eventually(said, within_seconds=within_seconds, says=self.status)

    def log(self, pod: str) -> str:
        return self.space.kubectl("logs", f"{self.name}-{pod}")
