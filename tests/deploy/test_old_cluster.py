"""deploy/v1beta1/crd.yaml on an API server that serves apiextensions.k8s.io/v1beta1, as those before 1.22 do.

It is the server of custom resources alone, version 0.21, beside a control plane of today that knows the users.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import ApiError, Client, ControlPlane, ensure
from documents import files
from paddlejob.testing.build import job

pytestmark = pytest.mark.apiserver

CRD = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "v1beta1" / "crd.yaml").read_text())
DEFINITIONS = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions"
JOBS = "/apis/batch.paddlepaddle.org/v1/namespaces/default/paddlejobs"
MERGE = {"content_type": "application/merge-patch+json"}


def arguments(plane: ControlPlane, port: int) -> list[str]:
    site = plane._site
    kubeconfigs = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return [
        f"--etcd-servers=https://127.0.0.1:{site.ports['etcd']}",
        "--etcd-prefix=/old",
        f"--etcd-cafile={site.pki('ca.crt')}",
        f"--etcd-certfile={site.pki('etcd.crt')}",
        f"--etcd-keyfile={site.pki('etcd.key')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={site.pki('apiserver.crt')}",
        f"--tls-private-key-file={site.pki('apiserver.key')}",
        *(f"--{flag}={plane.kubeconfig}" for flag in kubeconfigs),
    ]


@pytest.fixture(scope="module")
def old_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of the old server, on which PaddleJobs are served."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = (tmp_path_factory.mktemp("old") / "log").open("wb")
    program = ensure(["apiextensions-apiserver"])["apiextensions-apiserver"]
    with ControlPlane.start(("etcd", "kube-apiserver")) as plane, log:
        command = [program, *arguments(plane, port)]
        with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
            try:
                client = Client(f"https://127.0.0.1:{port}", ca_file=plane.ca_file, token=plane.token)
                install(client)
                yield client
            finally:
                process.kill()


def install(client: Client) -> None:
    """Create the definition as soon as the server answers, and wait until its kind is served."""
    eventually(lambda: client.request("POST", DEFINITIONS, CRD))
    eventually(lambda: client.request("GET", JOBS))


def eventually(request: Any, *, within_seconds: float = 60.0) -> None:
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            request()
        except (ApiError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def test_the_definition_is_accepted_without_complaint(old_server: Client) -> None:
    status = old_server.request("GET", f"{DEFINITIONS}/{CRD['metadata']['name']}")["status"]
    # Unknown fields are kept in these versions, which structural schemas do not do.
    allowed = {"NamesAccepted": "True", "Established": "True", "NonStructuralSchema": "True"}
    assert {one["type"]: one["status"] for one in status["conditions"]}.items() <= allowed.items()
    assert status["acceptedNames"]["shortNames"] == ["pdj"]


@pytest.mark.parametrize("name", files.jobs())
def test_every_job_of_the_documents_is_accepted(old_server: Client, name: str) -> None:
    created = old_server.request("POST", f"{JOBS}?dryRun=All", files.jobs()[name])
    assert created["spec"] == files.jobs()[name]["spec"]


def test_a_job_without_workers_is_refused(old_server: Client) -> None:
    body = {**job().ps(1).manifest, "metadata": {"name": "demo"}}
    with pytest.raises(ApiError, match=r"spec.worker.*Required value"):
        old_server.request("POST", f"{JOBS}?dryRun=All", body)


def test_status_and_scale_are_subresources(old_server: Client) -> None:
    old_server.request("POST", JOBS, {**job().worker(2).manifest, "metadata": {"name": "demo"}})
    status = {"phase": "Running", "worker": {"ready": "2/2", "replicas": 2}, "selector": "a=b"}
    old_server.request("PATCH", f"{JOBS}/demo/status", {"status": status}, **MERGE)
    scaled = old_server.request("PATCH", f"{JOBS}/demo/scale", {"spec": {"replicas": 3}}, **MERGE)
    assert (scaled["spec"]["replicas"], scaled["status"]["replicas"]) == (3, 2)
    found = old_server.request("GET", f"{JOBS}/demo")
    assert (found["spec"]["worker"]["replicas"], found["status"]["phase"]) == (3, "Running")
