"""A cluster in memory under virtual time: API server, kubelet, operator and, if wanted, a Volcano."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from paddlejob.api.resources import PADDLE_JOBS, VOLCANO_POD_GROUPS
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.gang.model import Scheduling
from paddlejob.core.snapshot import Settings
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS
from paddlejob.operator.controller import Controller
from paddlejob.operator.settings import OperatorSettings
from simkube.apiserver.server import ApiServer
from simkube.build import JobBuilder
from simkube.faults.transport import FaultRates, Faults
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.outcomes import Behaviour, exit_soon
from simkube.kubelet.pod_worker import Timing
from simkube.operator import Operator
from simkube.volcano import Volcano
from tests.support.definitions import PADDLE_JOB_CRD, VOLCANO_CRD
from tests.support.waiting import eventually_async

ROOT = Path(__file__).parents[2]


class SimulatedCluster:
    """Everything that a job meets; what runs of it is up to the test."""

    def __init__(
        self,
        *,
        behaviour: Behaviour = exit_soon,
        seed: int = 0,
        rates: FaultRates | None = None,
        timing: Timing | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = Faults(random.Random(f"faults {seed}"), rates)
        self.server = ApiServer(rng=self.rng)
        self.server.install(PADDLE_JOB_CRD)
        self.client = Client(self.faults.wrap(self.server.transport("operator")), rng=self.rng)
        self.volcano = Volcano(self.client_of("volcano"), capacity={"cpu": "8"})
        self.kubelet = Kubelet(self.client_of("kubelet"), behaviour=behaviour, rng=self.rng, timing=timing)
        self._operator: Operator | None = None
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def client_of(self, identity: str) -> Client:
        """Return the client of somebody else than the operator, whom no fault meets."""
        return Client(self.server.transport(identity), rng=self.rng)

    @property
    def controller(self) -> Controller:
        """The parts of the operator that runs, or ran last."""
        assert self._operator is not None
        return self._operator.controller

    async def operate(self, seconds: float, settings: OperatorSettings | None = None) -> None:
        """Run an operator, and nothing else, for a while."""
        self._operator = Operator(self.client, settings, rng=self.rng)
        await self._operator.run_for(seconds)

    @contextlib.asynccontextmanager
    async def running(self, scheduling: str = "", *, volcano: bool = True) -> AsyncIterator[SimulatedCluster]:
        """Run everything until the block is left."""
        settings = OperatorSettings(jobs=Settings(scheduling=Scheduling(scheduling)))
        async with asyncio.TaskGroup() as self._group:
            self._start(self.kubelet.run())
            if volcano:
                self.install_volcano()
            self._operator = Operator(self.client, settings, rng=self.rng)
            self._start(self._operator.run())
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

    def submit(self, job: JobBuilder) -> PaddleJob:
        """Create a job, and return it as the operator reads it."""
        manifest = {**job.manifest, "metadata": {"namespace": "default", **job.manifest["metadata"]}}
        manifest["metadata"].pop("uid", None)
        stored = self.server.create(PADDLE_JOBS, manifest, identity="user")
        return msgspec.convert(stored, PaddleJob, strict=False)

    def submit_group(self, name: str = "demo", **spec: Any) -> None:
        """Create a PodGroup of the user's own."""
        head = {"apiVersion": VOLCANO_POD_GROUPS.api_version, "kind": "PodGroup"}
        body = {**head, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
        self.server.create(VOLCANO_POD_GROUPS, body, identity="user")

    def edit(self, **spec: Any) -> None:
        """Change the spec of the job `demo`."""
        self.server.patch(PADDLE_JOBS, "default", "demo", {"spec": spec}, identity="user")

    def status(self, name: str = "demo") -> dict[str, Any]:
        """Return a job's status."""
        return (self.server.get(PADDLE_JOBS, "default", name) or {}).get("status") or {}

    def group(self, name: str = "demo") -> dict[str, Any] | None:
        """Return a job's PodGroup of Volcano's."""
        return self.server.get(VOLCANO_POD_GROUPS, "default", name)

    def pods(self) -> list[dict[str, Any]]:
        """Return all pods."""
        return self.server.objects(PODS)

    def pod_names(self) -> list[str]:
        """Return the names of all pods."""
        return [pod["metadata"]["name"] for pod in self.pods()]

    def bound(self) -> list[str]:
        """Return the names of the pods that have a node."""
        return [pod["metadata"]["name"] for pod in self.pods() if pod["spec"].get("nodeName")]

    async def until(self, condition: Callable[[], bool], *, within_seconds: float = 300.0) -> None:
        """Wait in virtual time for a condition."""

        await eventually_async(condition, within_seconds=within_seconds, says=self.status)

    async def until_phase(self, phase: str, name: str = "demo", *, within_seconds: float = 300.0) -> None:
        """Wait for a job's phase."""
        await self.until(lambda: self.status(name).get("phase") == phase, within_seconds=within_seconds)

    async def until_it_says(self, text: str) -> None:
        """Wait until the job's message has a text."""
        await self.until(lambda: text in self.status().get("message", ""))
