"""A cluster with an operator, a kubelet and, if wanted, a Volcano: all simulated but the operator."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import yaml

from paddlejob.core.gang.model import Scheduling
from paddlejob.core.snapshot import Settings
from paddlejob.kube.client import Client
from paddlejob.kube.events import EventRecorder
from paddlejob.kube.resource import PODS
from paddlejob.operator.controller import Controller
from paddlejob.operator.resources import PADDLE_JOBS, VOLCANO_POD_GROUPS
from paddlejob.operator.settings import OperatorSettings
from paddlejob.testing import virtual_loop
from paddlejob.testing.apiserver.fake_api import ApiServer
from paddlejob.testing.build import JobBuilder
from paddlejob.testing.faults.transport import FaultRates, Faults
from paddlejob.testing.kubelet.kubelet import Kubelet
from paddlejob.testing.kubelet.outcomes import Behaviour, exit_soon
from paddlejob.testing.volcano import Volcano
from tests.support.waiting import eventually_async

ROOT = Path(__file__).parents[2]
PADDLE_JOB_CRD = yaml.safe_load((ROOT / "deploy/v1/crd.yaml").read_text())
VOLCANO_CRD = yaml.safe_load((ROOT / "tests/schemas/volcano_podgroups.yaml").read_text())


class GangCluster:
    """Everything that a job meets."""

    def __init__(
        self, *, behaviour: Behaviour = exit_soon, seed: int = 0, rates: FaultRates | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = Faults(random.Random(f"faults {seed}"), rates)
        self.server = ApiServer(rng=self.rng)
        self.server.install(PADDLE_JOB_CRD)
        self.volcano = Volcano(self.client("volcano"), capacity={"cpu": "8"})
        self.kubelet = Kubelet(self.client("kubelet"), behaviour=behaviour, rng=self.rng)
        self.controller: Controller | None = None
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def client(self, identity: str) -> Client:
        return Client(self.server.transport(identity), rng=self.rng)

    @contextlib.asynccontextmanager
    async def running(self, scheduling: str = "", *, volcano: bool = True) -> AsyncIterator[GangCluster]:
        """Run everything until the block is left."""
        async with asyncio.TaskGroup() as self._group:
            self._start(self.kubelet.run())
            if volcano:
                self.install_volcano()
            self._start(self._operator(scheduling))
            try:
                yield self
            finally:
                for task in self._tasks:
                    task.cancel()

    def install_volcano(self) -> None:
        """Let Volcano be there from now on."""
        self.server.install(VOLCANO_CRD)
        self._start(self.volcano.run())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._group is not None
        self._tasks.append(self._group.create_task(work))

    async def _operator(self, scheduling: str) -> None:
        client = Client(self.faults.wrap(self.server.transport("operator")), rng=self.rng)
        async with EventRecorder(client, "operator", rng=self.rng, now=virtual_loop.now) as recorder:
            settings = OperatorSettings(jobs=Settings(scheduling=Scheduling(scheduling)))
            controller = Controller(client, settings, rng=self.rng, now=virtual_loop.now, recorder=recorder)
            self.controller = controller
            async with asyncio.TaskGroup() as group:
                group.create_task(controller.watch())
                group.create_task(controller.work())

    def submit(self, job: JobBuilder) -> None:
        manifest = {**job.manifest, "metadata": {**job.manifest["metadata"]}}
        manifest["metadata"].pop("uid", None)
        self.server.create(PADDLE_JOBS, manifest, identity="user")

    def submit_group(self, name: str = "demo", **spec: Any) -> None:
        head = {"apiVersion": VOLCANO_POD_GROUPS.api_version, "kind": "PodGroup"}
        body = {**head, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
        self.server.create(VOLCANO_POD_GROUPS, body, identity="user")

    def edit(self, **spec: Any) -> None:
        self.server.patch(PADDLE_JOBS, "default", "demo", {"spec": spec}, identity="user")

    def job(self, name: str = "demo") -> dict[str, Any]:
        return self.server.get(PADDLE_JOBS, "default", name) or {}

    def status(self, name: str = "demo") -> dict[str, Any]:
        return self.job(name).get("status") or {}

    def group(self, name: str = "demo") -> dict[str, Any] | None:
        return self.server.get(VOLCANO_POD_GROUPS, "default", name)

    def pods(self) -> list[dict[str, Any]]:
        return self.server.objects(PODS)

    def bound(self) -> list[str]:
        """Return the names of the pods that have a node."""
        return [pod["metadata"]["name"] for pod in self.pods() if pod["spec"].get("nodeName")]

    async def until(self, condition: Callable[[], bool], *, within_seconds: float = 300.0) -> None:
        """Wait in virtual time for a condition."""
        await eventually_async(
            condition, within_seconds=within_seconds, says=lambda: (self.status(), self.group())
        )

    async def until_phase(self, phase: str, name: str = "demo", *, within_seconds: float = 300.0) -> None:
        await self.until(lambda: self.status(name).get("phase") == phase, within_seconds=within_seconds)

    async def until_it_says(self, text: str) -> None:
        await self.until(lambda: text in self.status().get("message", ""))
