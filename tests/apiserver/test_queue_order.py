"""The order of a queue of Kueue, through the aggregation layer of a real API server.

Kueue itself is not run: a server with the answers of its documentation is registered in its place.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from client.explain.scene import workload
from devcluster import Cluster
from paddlejob.client.explain.gather import Reader, queue_order
from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from tests.support.tls_site import serve_tls
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.apiserver

GROUP = "visibility.kueue.x-k8s.io"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CERTIFICATES = Path(__file__).parents[1] / "kube" / "data"


@asynccontextmanager
async def visibility_server() -> AsyncIterator[int]:
    """Serve what Kueue does; yield the port."""
    waiting = [workload("other", 0, 2, owner="other"), workload("demo", 1, 3)]
    summary = {"kind": "PendingWorkloadsSummary", "apiVersion": f"{GROUP}/v1beta2", "items": waiting}
    resources = {"kind": "APIResourceList", "groupVersion": f"{GROUP}/v1beta2", "resources": []}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(summary if request.path.endswith("/pendingworkloads") else resources)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.crt", CERTIFICATES / "server.key")
    async with serve_tls(app, context) as port:
        yield port


@asynccontextmanager
async def registered(cluster: Cluster, namespace: str, port: int) -> AsyncIterator[None]:
    """Let the API server pass the group on."""
    service = {"metadata": {"name": "kueue"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    spec = {
        "group": GROUP,
        "version": "v1beta2",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"name": "kueue", "namespace": namespace, "port": port},
    }
    body = {"metadata": {"name": f"v1beta2.{GROUP}"}, "spec": spec}

    def register() -> None:
        cluster.request("POST", f"/api/v1/namespaces/{namespace}/services", service)
        cluster.request("POST", SERVICES, body)

    await asyncio.to_thread(register)
    try:
        yield
    finally:
        await asyncio.to_thread(cluster.request, "DELETE", f"{SERVICES}/v1beta2.{GROUP}")


def allow(cluster: Cluster, namespace: str) -> None:
    """Let the user read the order of the namespace's queues."""
    rule = {"apiGroups": [GROUP], "resources": ["localqueues/pendingworkloads"], "verbs": ["get"]}
    cluster.request(
        "POST", f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": "order"}, "rules": [rule]}
    )
    binding = {
        "metadata": {"name": "order"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "order"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    cluster.request("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)


async def test_the_order_is_shown_to_who_may_see_it(control_plane: Cluster, namespace: str) -> None:
    user = load_config(control_plane.service_account_kubeconfig(namespace, "default"))
    async with Client(HttpTransport(user)) as client, visibility_server() as port:
        reader = Reader(client, namespace)
        assert await queue_order(reader, "team-a") == (), "nobody serves it"
        async with registered(control_plane, namespace, port):
            assert await queue_order(reader, "team-a") == (), "the user may not see it"
            await asyncio.to_thread(allow, control_plane, namespace)

            async def is_shown() -> bool:
                return [each.owner for each in await queue_order(reader, "team-a")] == [
                    "Job other",
                    "Workload demo",
                ]

            await eventually_async(is_shown)
        assert reader.unseen == {}
