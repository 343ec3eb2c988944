"""A namespace of a real API server with an operator, simulated pods and a kubelet that serves their logs."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from behaviour.stage import QUICK, Stage
from devcluster import Cluster
from paddlejob.api.meta import JsonObject
from paddlejob.kube.client import Client
from paddlejob.kube.errors import TransportError
from paddlejob.kube.resource import PODS
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.operator.settings import HistorySettings
from simkube.kubelet import container_logs
from simkube.kubelet.container_logs import ContainerLogs
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.outcomes import Exit, ExitWhenReleased
from tests.support import pod_streams
from tests.support.tls_site import serve_tls
from tests.support.waiting import eventually_async

CERTIFICATES = Path(__file__).parents[1] / "kube" / "data"
T = TypeVar("T")


class RealCluster:
    """What a test may do with it from its own thread."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        *,
        operator: Path | None = None,
        history: HistorySettings | None = None,
        reads_progress: bool = False,
    ) -> None:
        """`operator` is the kubeconfig of the operator, by default that of an administrator."""
        self.cluster = cluster
        self.namespace = namespace
        self._operator, self._history = operator or cluster.kubeconfig, history
        self._reads_progress = reads_progress
        self.node = f"node-of-{namespace}"
        self._held: dict[str, asyncio.Event] = {}
        self._logs = ContainerLogs(lambda: datetime.now(UTC))
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.stage: Stage | None = None

    def hold(self, pod: str, code: int = 0, message: str = "", *, reason: str = "") -> None:
        """Let a pod run until `let_go`, and then exit so."""
        self._held[pod] = asyncio.Event()
        exit_ = Exit(code, message=message, reason=reason)
        self.stage.fates.set(pod, ExitWhenReleased(self._held[pod], exit_))

    def let_go(self, pod: str) -> None:
        self._loop.call_soon_threadsafe(self._held[pod].set)

    def write(self, pod: str, *lines: str) -> None:
        """Wait until a pod runs, and let it write."""

        async def write() -> None:
            found = await eventually_async(lambda: self._running(pod), says=lambda: f"{pod} does not run")
            self._logs.write(found, "".join(f"{line}\n" for line in lines).encode())

        self.do(write)

    def cut_logs(self) -> None:
        """Break the connections between API server and kubelet."""
        self._loop.call_soon_threadsafe(self._logs.cut)

    def do(self, work: Callable[[], Awaitable[T]]) -> T:
        async def main() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(main(), self._loop).result(60)

    async def _running(self, pod: str) -> JsonObject | None:
        listed = await self.stage.client.list(PODS, self.namespace, field_selector=f"metadata.name={pod}")
        found = next(iter(listed.items), None)
        is_up = found and container_logs.is_running(found, found["spec"]["containers"][0]["name"])
        return found if is_up else None

    @contextlib.contextmanager
    def running(self) -> Iterator[RealCluster]:
        thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="real cluster")
        thread.start()
        try:
            assert self._ready.wait(60)
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(60)
            self.cluster.request("DELETE", f"/api/v1/nodes/{self.node}")

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with (
            Client(HttpTransport(load_config(self.cluster.kubeconfig))) as client,
            Client(HttpTransport(load_config(self._operator))) as operator_client,
        ):
            self.stage = Stage(client, self.namespace, operator_client=operator_client)
            self.stage.history, self.stage.reads_progress = self._history, self._reads_progress
            self.stage.kubelet = Kubelet(
                client,
                behaviour=self.stage.fates.decide,
                nodes=[self.node],
                namespace=self.namespace,
                timing=QUICK,
            )

            async def act(_: Stage) -> None:
                self._ready.set()
                await self._stop.wait()

            async with self._serve_logs() as port:
                await asyncio.to_thread(self._create_node, port)
                await self.stage.play(act)

    def _create_node(self, port: int) -> None:
        body = {"metadata": {"name": self.node}}
        self.cluster.request("POST", "/api/v1/nodes", body)
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        self.cluster.request(
            "PATCH",
            f"/api/v1/nodes/{self.node}/status",
            {"status": status},
            content_type="application/merge-patch+json",
        )

    def _serve_logs(self) -> contextlib.AbstractAsyncContextManager[int]:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer)
        app.router.add_get("/portForward/{namespace}/{pod}", pod_streams.forward_port)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / "server.crt", CERTIFICATES / "server.key")
        return serve_tls(app, context)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Do what a kubelet does with the query that the API server passes on."""
        name, container = request.match_info["pod"], request.match_info["container"]
        query = {**request.query, "container": container}
        pod = await self.stage.client.get(PODS, self.namespace, name)
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        if query.get("follow") != "true":
            await response.write(self._logs.read(pod, query))
            return response
        seen = {"pod": pod}

        async def refresh() -> None:
            while True:
                listed = await self.stage.client.list(
                    PODS, self.namespace, field_selector=f"metadata.name={name}"
                )
                seen["pod"] = next(iter(listed.items), None)
                await asyncio.sleep(0.1)

        def is_running(instance: container_logs.Instance) -> bool:
            now = seen["pod"]
            return (
                bool(now)
                and container_logs.instance_of(now, container) == instance
                and (container_logs.is_running(now, container))
            )

        refreshing = asyncio.create_task(refresh())
        try:
            async for chunk in self._logs.follow(pod, query, is_running):
                await response.write(chunk)
        except (TransportError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            refreshing.cancel()
        return response
