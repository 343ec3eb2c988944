"""Checks that a hostile tenant does not delay a job of another namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.resource import PODS
from simkube.apiserver.server import ApiServer
from simkube.build import job
from simkube.kubelet import outcomes

NAMESPACE = "bystander"
NODE = "bystander-node"
"""Never silent."""
RUN_SECONDS = 20.0
RECOVERY_SECONDS = 300.0
"""From the last fault of the network until every watch and every operator works again."""
GIVE_UP_SECONDS = 600.0
DELAY_SECONDS = 5.0
"""Maximum delay that a hostile tenant may cause.

Two runs of the same job differ by up to 3 s without any hostile tenant: the kubelet takes 0.5 to 2 s to start
a pod and 0 to 2 s to report its phase, a gang scheduler looks every 2 s, the operator reads logs every 3 s.
In 42 histories (seeds 2000 to 2149) the largest difference was 2.1 s.
One write that waits for a slow webhook costs 10 s and more.
"""
LOG_LINE = b"[Train][Epoch 1/2][Iter: 10/500]lr: 0.1, loss: 0.5, ips: 12.5 samples/s, eta: 1:00:00\n"


class DelayedError(AssertionError):
    """A hostile tenant delayed a job of another namespace."""


class Bystander:
    """Measures the jobs of the well-behaved tenant."""

    def __init__(self, server: ApiServer, *, reads_progress: bool) -> None:
        self._server = server
        self._reads_progress = reads_progress
        self.beside: dict[str, float] = {}
        """Seconds until each stage of a job, with the hostile tenant."""
        self.alone: dict[str, float] = {}

    async def measure_beside(self) -> None:
        """Run a job while the hostile tenant does its worst."""
        self.beside = await self._run("beside")

    async def measure_alone(self) -> None:
        """Run the same job on the idle cluster, and compare."""
        self.alone = await self._run("alone")
        check(self.beside, self.alone)

    async def _run(self, name: str) -> dict[str, float]:
        clock = asyncio.get_running_loop().time
        built = job(name, NAMESPACE).worker(2, pod={"nodeName": NODE})
        built.manifest["metadata"].pop("uid")
        self._server.create(PADDLE_JOBS, built.manifest, identity="user")
        began, taken = clock(), {}
        # A late operator may find that the job has ended already.
        await self._until(lambda: self._status(name).get("phase") in ("Running", "Completed"), name)
        taken["Running"] = clock() - began
        if self._reads_progress:
            pod = self._server.get(PODS, NAMESPACE, f"{name}-worker-0")
            assert pod is not None
            self._server.container_logs.write(pod, LOG_LINE)
            began = clock()
            await self._until(lambda: (self._status(name).get("progress") or {}).get("step") == 10, name)
            taken["progress"] = clock() - began
        began = clock()
        await self._until(lambda: self._status(name).get("phase") == "Completed", name)
        taken["Completed"] = clock() - began + taken.get("progress", 0.0)
        return taken

    async def _until(self, holds: Callable[[], bool], name: str) -> None:
        clock = asyncio.get_running_loop().time
        changed, deadline = asyncio.Event(), clock() + GIVE_UP_SECONDS

        def notice(_: object) -> None:
            changed.set()

        self._server.store.observers.append(notice)
        try:
            while not holds():
                changed.clear()
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
        except TimeoutError as error:
            raise DelayedError(f"{name} within {GIVE_UP_SECONDS:g} s: {self._status(name)}") from error
        finally:
            self._server.store.observers.remove(notice)

    def _status(self, name: str) -> JsonObject:
        return (self._server.get(PADDLE_JOBS, NAMESPACE, name) or {}).get("status") or {}


def outcome(pod: JsonObject) -> outcomes.Outcome | None:
    """Return the outcome of a pod of the well-behaved tenant, None for other pods."""
    return outcomes.Exit(0, RUN_SECONDS) if pod["metadata"]["namespace"] == NAMESPACE else None


def check(beside: dict[str, float], alone: dict[str, float]) -> None:
    """Raise DelayedError if the hostile tenant delayed a stage."""
    for stage, seconds in beside.items():
        if seconds > alone[stage] + DELAY_SECONDS:
            raise DelayedError(
                f"{stage} after {seconds:.1f} s beside a hostile tenant, after {alone[stage]:.1f} s alone"
            )
