"""deploy/v1beta1/crd.yaml on an API server that serves apiextensions.k8s.io/v1beta1, as those before 1.22 do.

It is the server of custom resources alone, version 0.21; a control plane of today tells it who its users are.
"""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from devcluster import ApiError, Client, ControlPlane, ensure
from devcluster.control_plane.kubeconfig import write_kubeconfig
from documents import files
from paddlejob.api.v1 import PaddleJob
from paddlejob.kube.cache import Cache
from paddlejob.kube.client import Client as KubeClient
from paddlejob.kube.informer import Informer
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.operator.resources import PADDLE_JOBS
from paddlejob.testing.build import job
from tests.support.waiting import eventually

pytestmark = pytest.mark.apiserver

CRD = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "v1beta1" / "crd.yaml").read_text())
DEFINITIONS = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions"
JOBS = "/apis/batch.paddlepaddle.org/v1/namespaces/default/paddlejobs"
MERGE = {"content_type": "application/merge-patch+json"}


def arguments(plane: ControlPlane, port: int) -> list[str]:
    context = plane._layout
    kubeconfigs = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [
        f"--etcd-servers=https://127.0.0.1:{context.ports['etcd']}",
        "--etcd-prefix=/old",
        f"--etcd-cafile={context.pki('ca.crt')}",
        f"--etcd-certfile={context.pki('etcd.crt')}",
        f"--etcd-keyfile={context.pki('etcd.key')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={context.pki('apiserver.crt')}",
        f"--tls-private-key-file={context.pki('apiserver.key')}",
        *(f"--{flag}={plane.kubeconfig}" for flag in kubeconfigs),
    ]


class OldServer(NamedTuple):
    client: Client
    kubeconfig: Path

    def request(self, *arguments: Any, **options: Any) -> Any:
        return self.client.request(*arguments, **options)


@pytest.fixture(scope="module")
def old_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldServer]:
    """The old server, on which PaddleJobs are served."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    directory = tmp_path_factory.mktemp("old")
    log = (directory / "log").open("wb")
    program = ensure(["apiextensions-apiserver"])["apiextensions-apiserver"]
    with ControlPlane.start(("etcd", "kube-apiserver")) as plane, log:
        command = [program, *arguments(plane, port)]
        with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
            try:
                url, access = f"https://127.0.0.1:{port}", {"ca_file": plane.ca_file, "token": plane.token}
                client = Client(url, **access)
                install(client)
                yield OldServer(client, write_kubeconfig(directory / "kubeconfig", url=url, **access))
            finally:
                process.kill()


def install(client: Client) -> None:
    """Create the definition as soon as the server answers, and wait until its kind is served."""
    not_yet = (ApiError, OSError)
    eventually(lambda: client.request("POST", DEFINITIONS, CRD), ignoring=not_yet)
    eventually(lambda: client.request("GET", JOBS), ignoring=not_yet)


def test_the_definition_is_accepted_without_complaint(old_server: OldServer) -> None:
    # Unknown fields are kept in these versions, which structural schemas do not do.
    allowed = {"NamesAccepted": "True", "Established": "True", "NonStructuralSchema": "True"}

    def accepted() -> dict[str, Any] | None:
        status = old_server.request("GET", f"{DEFINITIONS}/{CRD['metadata']['name']}")["status"]
        found = {one["type"]: one["status"] for one in status["conditions"]}
        return status if found.items() <= allowed.items() else None

    status = eventually(accepted)
    assert status["acceptedNames"]["shortNames"] == ["pdj"]


@pytest.mark.parametrize("name", files.jobs())
def test_every_job_of_the_documents_is_accepted(old_server: OldServer, name: str) -> None:
    created = old_server.request("POST", f"{JOBS}?dryRun=All", files.jobs()[name])
    assert created["spec"] == files.jobs()[name]["spec"]


def test_a_job_without_workers_is_refused(old_server: OldServer) -> None:
    body = {**job().ps(1).manifest, "metadata": {"name": "demo"}}
    with pytest.raises(ApiError, match=r"spec.worker.*Required value"):
        old_server.request("POST", f"{JOBS}?dryRun=All", body)


def test_status_and_scale_are_subresources(old_server: OldServer) -> None:
    old_server.request("POST", JOBS, {**job().worker(2).manifest, "metadata": {"name": "demo"}})
    status = {"phase": "Running", "worker": {"ready": "2/2", "replicas": 2}, "selector": "a=b"}
    old_server.request("PATCH", f"{JOBS}/demo/status", {"status": status}, **MERGE)
    scaled = old_server.request("PATCH", f"{JOBS}/demo/scale", {"spec": {"replicas": 3}}, **MERGE)
    assert (scaled["spec"]["replicas"], scaled["status"]["replicas"]) == (3, 2)
    found = old_server.request("GET", f"{JOBS}/demo")
    assert (found["spec"]["worker"]["replicas"], found["status"]["phase"]) == (3, "Running")


async def test_an_informer_falls_back_to_what_it_knows(old_server: OldServer) -> None:
    old_server.request("POST", JOBS, {**job().worker(1).manifest, "metadata": {"name": "early"}})
    async with KubeClient(HttpTransport(load_config(old_server.kubeconfig))) as client:
        informer = Informer(client, PADDLE_JOBS, type=PaddleJob, cache=Cache(), rng=random.Random(0))
        task = asyncio.create_task(informer.run())
        try:
            async with asyncio.timeout(30):
                await informer.synced.wait()
                body = {**job().worker(1).manifest, "metadata": {"name": "late"}}
                written = await client.create(PADDLE_JOBS, "default", body)
                await informer.cache.reached(written.metadata.resource_version)
        finally:
            task.cancel()
            await asyncio.wait({task})
    assert {"early", "late"} <= {found.name for found in informer.cache}
    assert informer.lists == 1
