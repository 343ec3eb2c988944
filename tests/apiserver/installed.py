"""What the tests of an installation share: the shipped files, and operators that run as they do in a pod."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from behaviour.stage import Stage
from devcluster import Cluster, ControlPlane
from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CRD = DEPLOY / "v1" / "crd.yaml"
OPERATOR = DEPLOY / "v1" / "operator.yaml"
NAMESPACED = DEPLOY / "v1" / "operator-namespaced.yaml"
NAMESPACE = "paddle-system"
ACCOUNT = "paddle-manager-sa"


def objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def apply(cluster: Cluster, *files: Path) -> None:
    """Apply files and wait until PaddleJobs can be created."""
    cluster.apply(*files)


def refresh_garbage_collector(plane: ControlPlane) -> None:
    """Let the garbage collector know PaddleJobs at once: it looks for new kinds every half minute only."""
    plane.restart("kube-controller-manager")


def account_kubeconfig(cluster: Cluster, namespace: str = NAMESPACE) -> Path:
    """Return a kubeconfig that acts as the operator's service account, with all its rights and no other."""
    return cluster.service_account_kubeconfig(namespace, ACCOUNT)


def container_arguments(file: Path) -> list[str]:
    """Return the arguments that the shipped Deployment gives the operator."""
    deployment = next(each for each in objects(file) if each["kind"] == "Deployment")
    arguments: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments


class OperatorProcess:
    """`paddlejob operator` as a process of its own, with the rights of a kubeconfig."""

    def __init__(self, kubeconfig: Path, arguments: list[str], log: Path) -> None:
        program = Path(sys.executable).parent / "paddlejob"
        quiet = ["--metrics-bind-address=0", "--health-probe-bind-address=0"]
        quiet.append("--reports-bind-address=127.0.0.1:0")
        command = [program, "operator", f"--kubeconfig={kubeconfig}", *quiet, *arguments]
        self.log = log
        with log.open("wb") as sink:
            self.process = subprocess.Popen(command, stderr=sink)

    @property
    def leads(self) -> bool:
        """Whether it works on jobs, or has once."""
        return "reconciling jobs" in self.log.read_text()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it as Kubernetes does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@contextmanager
def operators(
    kubeconfig: Path, arguments: list[str], logs: Path, *, count: int = 1
) -> Iterator[list[OperatorProcess]]:
    """Run operators; whatever happens, none is left behind."""
    running = [
        OperatorProcess(kubeconfig, arguments, logs / f"operator-{number}.log") for number in range(count)
    ]
    try:
        yield running
    finally:
        for each in running:
            each.kill()


@asynccontextmanager
async def simulated_node(cluster: Cluster, namespace: str) -> AsyncIterator[Stage]:
    """Run the pods of a namespace; the stage has no operator of its own."""
    async with Client(HttpTransport(load_config(cluster.kubeconfig))) as client:
        stage = Stage(client, namespace)
        kubelet = asyncio.create_task(stage.kubelet.run())
        try:
            yield stage
        finally:
            kubelet.cancel()
            await asyncio.wait({kubelet})
