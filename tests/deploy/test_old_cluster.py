"""The CRDs of deploy/v1 and deploy/v1beta1 on an API server of Kubernetes 1.21, and the operator on it.

It is the server of custom resources alone, version 0.21: whole API servers of that age do not build from
their Go modules. A control plane of today authenticates its users, and serves pods and all other objects.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web

from behaviour.stage import Stage
from devcluster import ApiError, Client, ControlPlane, ensure
from devcluster.control_plane.kubeconfig import write_kubeconfig
from documents import files
from documents.test_played import differences
from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJob
from paddlejob.kube.cache import Cache
from paddlejob.kube.client import Client as KubeClient
from paddlejob.kube.informer import Informer
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube.build import job
from simkube.kubelet.outcomes import Exit
from tests.apiserver import installed
from tests.support.tls_site import serve_tls
from tests.support.waiting import eventually

pytestmark = pytest.mark.apiserver

OLD_GROUPS = ("/apis/apiextensions.k8s.io", "/apis/batch.paddlepaddle.org")
JOBS = "/apis/batch.paddlepaddle.org/v1/namespaces/default/paddlejobs"
PASSED = ("Authorization", "Content-Type", "Accept")
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
    plane: ControlPlane
    """The server of all other objects."""
    url: str
    version: str
    """Directory of the installed files."""

    @property
    def definitions(self) -> str:
        return f"/apis/apiextensions.k8s.io/{self.version}/customresourcedefinitions"

    def request(self, *arguments: Any, **options: Any) -> Any:
        return self.client.request(*arguments, **options)


@pytest.fixture(scope="module", params=["v1", "v1beta1"])
def old_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OldServer]:
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
                kubeconfig = write_kubeconfig(directory / "kubeconfig", url=url, **access)
                old = OldServer(Client(url, **access), kubeconfig, plane, url, request.param)
                install(old)
                yield old
            finally:
                process.kill()


def install(old: OldServer) -> None:
    """Create the definition as soon as the server answers, and wait until its kind is served."""
    (definition,) = installed.objects(installed.DEPLOY / old.version / "crd.yaml")
    not_yet = (ApiError, OSError)
    eventually(lambda: old.request("POST", old.definitions, definition), ignoring=not_yet)
    eventually(lambda: old.request("GET", JOBS), ignoring=not_yet)


@asynccontextmanager
async def one_cluster(old: OldServer) -> AsyncIterator[str]:
    """Give the address of a cluster with PaddleJobs of the old server and all other objects of the plane."""
    trusted = ssl.create_default_context(cafile=old.plane.ca_file)

    async def forward(request: web.Request) -> web.StreamResponse:
        url = old.url if request.path.startswith(OLD_GROUPS) else old.plane.url
        passed = {name: request.headers[name] for name in PASSED if name in request.headers}
        body = await request.read()
        async with session.request(
            request.method, f"{url}{request.path_qs}", headers=passed, data=body, ssl=trusted
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response

    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(*(old.plane._layout.pki(f"apiserver.{end}") for end in ("crt", "key")))
    application = web.Application(client_max_size=1 << 22)
    application.router.add_route("*", "/{path:.*}", forward)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
        serve_tls(application, own) as port,
    ):
        yield f"https://127.0.0.1:{port}"


async def test_the_operator_as_shipped_runs_a_job(old_server: OldServer, tmp_path: Path) -> None:
    plane, file = old_server.plane, installed.DEPLOY / old_server.version / "operator.yaml"
    plane.apply(file)
    plane.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    token = plane.service_account_token(installed.NAMESPACE, installed.ACCOUNT)
    async with one_cluster(old_server) as url:
        access = {"url": url, "ca_file": plane.ca_file}
        account = write_kubeconfig(tmp_path / "account", token=token, namespace=installed.NAMESPACE, **access)
        administrator = write_kubeconfig(tmp_path / "administrator", token=plane.token, **access)
        async with KubeClient(HttpTransport(load_config(administrator))) as client:
            stage = Stage(client, "default")
            kubelet = asyncio.create_task(stage.kubelet.run())
            arguments = installed.container_arguments(file)
            with installed.operators(account, arguments, tmp_path) as [operator]:
                stage.fates.set("trained-worker-0", Exit(0, 0.3))
                await stage.submit(job("trained").ps(1).worker(1))
                await stage.phase("Completed", "trained")
                assert await asyncio.to_thread(operator.stop) == 0
            kubelet.cancel()
            await asyncio.wait({kubelet})


def test_the_definition_is_accepted_without_complaint(old_server: OldServer) -> None:
    allowed = {"NamesAccepted": "True", "Established": "True"}
    if old_server.version == "v1beta1":
        # Unknown fields are kept in these versions, which structural schemas do not do.
        allowed["NonStructuralSchema"] = "True"

    def accepted() -> dict[str, Any] | None:
        status = old_server.request("GET", f"{old_server.definitions}/paddlejobs.{names.GROUP}")["status"]
        found = {one["type"]: one["status"] for one in status["conditions"]}
        return status if found.items() <= allowed.items() else None

    status = eventually(accepted)
    assert status["acceptedNames"]["shortNames"] == ["pdj"]


@pytest.mark.parametrize("name", files.jobs())
def test_every_job_of_the_documents_is_accepted(old_server: OldServer, name: str) -> None:
    created = old_server.request("POST", f"{JOBS}?dryRun=All", files.jobs()[name])
    assert list(differences(files.jobs()[name]["spec"], created["spec"])) == []


def test_a_job_without_workers_is_refused(old_server: OldServer) -> None:
    body = {**job().ps(1).manifest, "metadata": {"name": "demo"}}
    if old_server.version == "v1":
        # This rule is in CEL, which the server drops; the operator reports the error instead.
        assert old_server.request("POST", f"{JOBS}?dryRun=All", body)
        return
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
                await informer.cache.wait_for_version(written.metadata.resource_version)
        finally:
            task.cancel()
            await asyncio.wait({task})
    assert {"early", "late"} <= {found.name for found in informer.cache}
    assert informer.lists == 1
