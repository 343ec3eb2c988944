"""Candidates for a lease on an in-memory API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from paddlejob.kube.client import Client
from paddlejob.kube.errors import TransportError
from paddlejob.kube.lease import LeaderElector
from paddlejob.kube.resource import LEASES
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer, SimulatedTransport


class CutOffTransport(SimulatedTransport):
    """Answers nothing while it is cut."""

    is_cut = False

    async def request(self, method, path, **options):
        if self.is_cut:
            raise TransportError("no route to host")
        return await super().request(method, path, **options)


class Candidate:
    """An elector, its connection, and its work."""

    def __init__(self, server: ApiServer, identity: str, **options: object) -> None:
        self.transport = CutOffTransport(server, identity, None)
        self.stuck_at: list[float] = []
        self.elector = LeaderElector(
            Client(self.transport),
            namespace="system",
            name="paddlejob",
            identity=identity,
            rng=random.Random(identity),
            now=virtual_loop.now,
            on_stuck=lambda: self.stuck_at.append(seconds()),
            **options,
        )
        self.started = asyncio.Event()
        self.stopped_at: float | None = None

    async def work(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped_at = seconds()

    def run(self, work: Callable[[], Awaitable[object]] | None = None) -> asyncio.Task:
        return asyncio.create_task(self.elector.run(work or self.work))


class Scene:
    def __init__(self) -> None:
        self.server = ApiServer()

    def candidate(self, identity: str = "one", **options: object) -> Candidate:
        return Candidate(self.server, identity, **options)

    def spec(self) -> dict:
        lease = self.server.get(LEASES, "system", "paddlejob")
        assert lease is not None
        return lease["spec"]

    def change(self, **spec: object) -> None:
        self.server.patch(LEASES, "system", "paddlejob", {"spec": spec})

    def put(self, **spec: object) -> None:
        metadata = {"name": "paddlejob", "namespace": "system"}
        head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        self.server.create(LEASES, {**head, "spec": spec})


def play(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Scene())

    virtual_loop.run(main())


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def stop(task: asyncio.Task) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
