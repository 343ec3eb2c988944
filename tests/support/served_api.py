"""The in-memory API server behind real HTTP, with an operator and a simulated kubelet, in a thread.

For what talks to a server from outside: commands, and clients that bring their own event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from client.scene import Scene
from paddlejob.kube.errors import TransportError
from simkube.apiserver import watches
from simkube.apiserver.server import ApiServer
from tests.support import pod_streams
from tests.support.definitions import PADDLE_JOB_CRD

T = TypeVar("T")

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class ServedCluster:
    """What a test may do with the cluster from its own thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, scene: Scene, front: Front, directory: Path) -> None:
        self._loop = loop
        self.scene = scene
        self.server = scene.server
        self.front = front
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(
            f"""
clusters: [{{name: test, cluster: {{server: "http://127.0.0.1:{front.port}"}}}}]
contexts:
- {{name: test, context: {{cluster: test}}}}
- {{name: other, context: {{cluster: test, namespace: b}}}}
current-context: test
"""
        )

    def do(self, work: Callable[[Scene], Awaitable[T]], patience_seconds: float = 60.0) -> T:
        """Do something inside the cluster, and return its result."""

        async def main() -> T:
            return await work(self.scene)

        return asyncio.run_coroutine_threadsafe(main(), self._loop).result(patience_seconds)

    def write(self, pod: str, *lines: str) -> None:
        """Wait until a pod runs, and let it write."""

        async def write(scene: Scene) -> None:
            await scene.runs(pod)
            scene.write(pod, *lines)

        self.do(write)

    def let_go(self, pod: str) -> None:
        """Let a pod exit that was held."""
        self._loop.call_soon_threadsafe(self.scene.let_go, pod)

    def until_watched(self) -> None:
        """Wait until somebody watches through the server."""

        async def watched(scene: Scene) -> None:
            await scene.until(lambda: asyncio.sleep(0, self.front.is_watched), "watched")

        self.do(watched)

    def go_away(self) -> None:
        """Stop serving: connections break, and new ones are refused."""
        asyncio.run_coroutine_threadsafe(self.front.stop(), self._loop).result(60)

    def come_back(self) -> None:
        """Serve again, on the same port."""
        asyncio.run_coroutine_threadsafe(self.front.start(), self._loop).result(60)


class Front:
    """HTTP in front of an in-memory API server."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._runner: web.AppRunner | None = None
        self._streams: set[asyncio.Task[object]] = set()
        self.port = 0
        self.protocols: tuple[str, ...] = (pod_streams.V5, pod_streams.V4)
        """Of pods/exec; servers before Kubernetes 1.30 have only the second."""
        self.refusal: dict | None = None
        """The Status that everybody gets who wants to enter a pod."""
        self.denied: set[tuple[str, str]] = set()
        """Verbs and resources that the user has no right to, such as ("get", "pods/log")."""

    @property
    def is_watched(self) -> bool:
        """Whether a stream is open."""
        return bool(self._streams)

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Break all connections and refuse new ones."""
        for stream in self._streams:
            stream.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        if denial := self._denial(request):
            return web.json_response(denial, status=403)
        if request.path.endswith(("/exec", "/portforward")):
            return await self._into_pod(request)
        if query.get("watch") == "true" or request.path.endswith("/log"):
            return await self._stream(request, query)
        response = self._server.handle(
            request.method,
            request.path,
            query=query,
            body=await request.read() or None,
            content_type=request.content_type,
        )
        return web.Response(status=response.status, body=response.body, headers=dict(response.headers))

    def _denial(self, request: web.Request) -> dict | None:
        """Return what an API server answers to whoever lacks the right."""
        kind, *rest = request.path.strip("/").split("/")
        group, rest = ("", rest[1:]) if kind == "api" else ("".join(rest[:1]), rest[2:])
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            rest = rest[2:]
        resource = "/".join((*rest[:1], *rest[2:3]))
        verb = _VERBS.get(request.method, "get" if len(rest) > 1 else "list")
        verb = "watch" if request.query.get("watch") == "true" else verb
        if (verb, resource) not in self.denied:
            return None
        message = (
            f'{resource} is forbidden: User "alice" cannot {verb} resource "{resource}" '
            f'in API group "{group}" in the namespace "default"'
        )
        return {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message}

    async def _into_pod(self, request: web.Request) -> web.StreamResponse:
        """Do what a kubelet does, when there is such a pod and the client may enter it."""
        found = self._server.handle("GET", request.path.rpartition("/")[0])
        if self.refusal is not None:
            return web.json_response(self.refusal, status=self.refusal["code"])
        if found.status != 200:
            return web.Response(status=found.status, body=found.body)
        if "Upgrade" not in request.headers:
            return web.json_response({"kind": "Status", "message": "Upgrade request required"}, status=400)
        if request.path.endswith("/exec"):
            return await pod_streams.execute(request, self.protocols)
        return await pod_streams.forward_port(request)

    async def _stream(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        stream = self._server.open_stream(request.path, query, "http", None)
        response = web.StreamResponse(status=stream.status, headers=dict(stream.headers))
        await response.prepare(request)
        try:
            async for chunk in stream.chunks():
                await response.write(chunk)
        except (TransportError, asyncio.CancelledError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._streams.discard(task)
            if isinstance(stream, watches.Watch):
                self._server.close_watch(stream)
        return response


@contextlib.contextmanager
def served_cluster(directory: Path) -> Iterator[ServedCluster]:
    """Run a cluster in a thread for as long as the context is open."""
    ready = threading.Event()
    found: list[ServedCluster] = []
    ending: list[Callable[[], object]] = []

    async def main() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        ending.append(lambda: loop.call_soon_threadsafe(stop.set))
        async with _cluster(directory) as cluster:
            found.append(cluster)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="cluster")
    thread.start()
    try:
        assert ready.wait(30)
        yield found[0]
    finally:
        for end in ending:
            end()
        thread.join(30)


@contextlib.asynccontextmanager
async def _cluster(directory: Path) -> AsyncIterator[ServedCluster]:
    server = ApiServer(garbage_delay_seconds=(0.0, 0.1))
    server.install(PADDLE_JOB_CRD)
    scene, front = Scene(server), Front(server)
    await front.start()
    opened, closing = asyncio.Event(), asyncio.Event()

    async def act(_: object) -> None:
        opened.set()
        await closing.wait()

    playing = asyncio.create_task(scene.play(act))
    try:
        await opened.wait()
        yield ServedCluster(asyncio.get_running_loop(), scene, front, directory)
    finally:
        closing.set()
        await playing
        await front.stop()
