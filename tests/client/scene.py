"""A cluster in memory with an operator and a kubelet, and a user who follows jobs on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from behaviour.stage import Stage
from paddlejob.api.meta import JsonObject
from paddlejob.client.cluster import Cluster, ClusterJob
from paddlejob.client.logs.model import LogBlock, LogQuery
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS
from paddlejob.kube.transport import Transport
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from simkube.build import JobBuilder
from simkube.kubelet.outcomes import Exit, ExitWhenReleased
from tests.support.definitions import PADDLE_JOB_CRD


class Scene(Stage):
    """A stage with a user."""

    def __init__(
        self, server: ApiServer, around_user: Callable[[Transport], Transport] = lambda transport: transport
    ) -> None:
        super().__init__(Client(server.transport("all")), "default")
        self.server = server
        self._held: dict[str, asyncio.Event] = {}
        self.cluster = Cluster(Client(around_user(server.transport("user"))), "default")

    async def submitted(self, built: JobBuilder) -> ClusterJob:
        """Create a job and return it as its user sees it."""
        await self.submit(built)
        return await self.cluster.get(built.manifest["metadata"]["name"])

    def hold(self, pod: str, code: int = 0, message: str = "") -> None:
        """Let a pod run until `let_go`, and then exit so."""
        self._held[pod] = asyncio.Event()
        self.fates.set(pod, ExitWhenReleased(self._held[pod], Exit(code, message=message)))

    def let_go(self, pod: str) -> None:
        """Let a pod exit that was held."""
        self._held[pod].set()

    def write(self, pod: str, *lines: str) -> None:
        """Let the training container of a pod write lines."""
        found = self.server.get(PODS, "default", pod)
        assert found is not None, f"there is no pod {pod}"
        self.server.container_logs.write(found, "".join(f"{line}\n" for line in lines).encode())

    async def runs(self, *pods: str) -> None:
        """Wait until pods run."""

        async def all_run() -> bool:
            found = [self.server.get(PODS, "default", pod) for pod in pods]
            return all(pod is not None and _is_running(pod) for pod in found)

        await self.until(all_run, f"{pods} run")


def play(act: Callable[[Scene], Awaitable[None]], *, seed: int = 1, **options) -> None:
    """Play an act in virtual time."""

    async def main() -> None:
        server = ApiServer(garbage_delay_seconds=(0.0, 0.1))
        server.install(PADDLE_JOB_CRD)
        scene = Scene(server, **options)
        await scene.play(act)

    virtual_loop.run(main(), seed=seed)


async def texts(job: ClusterJob, query: LogQuery) -> list[str]:
    """Return lines as `rank: text`, and markers as they are."""
    found = []
    async for item in job.logs(query):
        is_log = isinstance(item, LogBlock)
        found += [f"{line.rank}: {line.text}" if is_log else f"--- {line.text}" for line in item.lines()]
    return found


def _is_running(pod: JsonObject) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    return "running" in statuses[0].get("state", {}) and "deletionTimestamp" not in pod["metadata"]
