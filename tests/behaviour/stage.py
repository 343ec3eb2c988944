"""A cluster with an operator, on which the same acts are played: in memory or a real one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.core.gang.model import Scheduling
from paddlejob.core.snapshot import Settings
from paddlejob.kube.client import Client
from paddlejob.kube.errors import NotFoundError
from paddlejob.kube.resource import CONFIG_MAPS, EVENTS, PODS, SERVICES, Resource
from paddlejob.operator.settings import HistorySettings, OperatorSettings
from simkube.build import JobBuilder
from simkube.kubelet import outcomes
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.pod_worker import Timing
from simkube.operator import Operator
from tests.support.waiting import eventually_async

QUICK = Timing(
    start_seconds=(0.0, 0.05),
    init_seconds=(0.0, 0.05),
    stop_seconds=(0.0, 0.05),
    backoff_seconds=0.1,
    config_retry_seconds=(10.0, 15.0),
)

SETTINGS = Settings(server_exit_grace_seconds=1.0, elastic_wait_seconds=1.0, force_delete_seconds=2.0)


class Fates:
    """What becomes of the containers, changeable while the play runs; servers serve and workers train."""

    def __init__(self) -> None:
        self._by_pod: dict[str, list[outcomes.Outcome]] = {}
        self.otherwise: Callable[[str], outcomes.Outcome] = lambda pod: outcomes.RunForever()
        """What becomes of pods that nothing was set for, by name."""

    def set(self, pod: str, *fates: outcomes.Outcome) -> None:
        """Set the outcomes of a pod's first run, its second, and so on."""
        self._by_pod[pod] = list(fates)

    def decide(self, pod: JsonObject, container: str, restarts: int) -> outcomes.Outcome:
        name = pod["metadata"]["name"]
        fates = self._by_pod.get(name)
        return fates.pop(0) if fates else self.otherwise(name)


class Stage:
    """What an act may do and look at, in one namespace."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        operator_client: Client | None = None,
        scheduling: str = "",
        binds_pods: bool = True,
    ) -> None:
        self.client = client
        self.operator_client = operator_client or client
        """Where it is another one, the operator has rights of its own."""
        self.namespace = namespace
        self.scheduling = Scheduling(scheduling)
        self.fates = Fates()
        self.rng = random.Random(1)
        self.kubelet = Kubelet(
            client,
            behaviour=self.fates.decide,
            rng=self.rng,
            namespace=namespace,
            timing=QUICK,
            schedules=binds_pods,
        )
        self.history: HistorySettings | None = None
        """How an operator that is started from now on keeps records of jobs."""
        self.reads_progress = False
        """Whether it reads the progress of jobs from their logs."""
        self.base_port = SETTINGS.base_port
        self._operator: asyncio.Task[None] | None = None

    async def play(self, act: Callable[[Stage], Awaitable[None]]) -> None:
        """Play one act with a kubelet and an operator."""
        kubelet = asyncio.create_task(self.kubelet.run())
        self.start_operator()
        try:
            await act(self)
        finally:
            await self.stop_operator()
            kubelet.cancel()
            await asyncio.wait({kubelet})

    def start_operator(self) -> None:
        """Start an operator for this namespace."""
        self._operator = asyncio.create_task(self.operator().run())

    def operator(self) -> Operator:
        """Return an operator for this namespace."""
        jobs = msgspec.structs.replace(SETTINGS, scheduling=self.scheduling, base_port=self.base_port)
        settings = OperatorSettings(namespace=self.namespace, history=self.history, jobs=jobs)
        return Operator(self.operator_client, settings, rng=self.rng, reads_progress=self.reads_progress)

    async def stop_operator(self) -> None:
        """End it as SIGTERM does."""
        assert self._operator is not None
        self._operator.cancel()
        await asyncio.wait({self._operator})

    async def submit(self, built: JobBuilder) -> None:
        """Create a job."""
        given = built.manifest["metadata"]
        metadata = {"name": given["name"], "annotations": given.get("annotations", {})}
        body = {**built.manifest, "metadata": metadata}
        await self.client.create(PADDLE_JOBS, self.namespace, body, strict=True)

    async def edit(self, **spec: Any) -> None:
        """Change the spec of the job `demo`."""
        await self.client.patch(PADDLE_JOBS, self.namespace, "demo", {"spec": spec})

    async def job(self, name: str = "demo") -> JsonObject:
        """Return a job."""
        return await self.client.get(PADDLE_JOBS, self.namespace, name)

    async def status(self, name: str = "demo") -> JsonObject:
        """Return a job's status."""
        return (await self.job(name)).get("status", {})

    async def names(self, resource: Resource = PODS) -> list[str]:
        """Return the names of all objects of a kind."""
        listed = await self.client.list(resource, self.namespace)
        return sorted(each["metadata"]["name"] for each in listed.items)

    async def pod(self, name: str) -> JsonObject:
        """Return a pod."""
        return await self.client.get(PODS, self.namespace, name)

    async def config(self) -> dict[str, str]:
        """Return the job's ConfigMap."""
        return (await self.client.get(CONFIG_MAPS, self.namespace, "demo"))["data"]

    async def reasons(self) -> set[str]:
        """Return the reasons of all events on jobs."""
        listed = await self.client.list(EVENTS, self.namespace)
        return {each["reason"] for each in listed.items if each["involvedObject"]["kind"] == "PaddleJob"}

    async def phase(self, wanted: str, name: str = "demo") -> JsonObject:
        """Wait for a job's phase and return its status."""
        await self.until(lambda: self._has_phase(name, wanted), f"{name} is {wanted}")
        return await self.status(name)

    async def says(self, text: str) -> None:
        """Wait until the job `demo` has a text in its message."""

        async def it_does() -> bool:
            return text in (await self.status()).get("message", "")

        await self.until(it_does, f"the job says {text!r}")

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait until something is so."""

        async def says() -> str:
            return f"{what}: {await self._picture()}"

        await eventually_async(holds, says=says)

    async def gone(self, *resources: Resource) -> None:
        """Wait until no object of these kinds is left."""

        async def empty() -> bool:
            return not any(
                [await self._ours(resource) for resource in resources or (PODS, SERVICES, CONFIG_MAPS)]
            )

        await self.until(empty, "everything is gone")

    async def _ours(self, resource: Resource) -> list[str]:
        listed = await self.client.list(resource, self.namespace)
        return [each["metadata"]["name"] for each in listed.items if each["metadata"].get("ownerReferences")]

    async def _has_phase(self, name: str, wanted: str) -> bool:
        try:
            return (await self.status(name)).get("phase") == wanted
        except NotFoundError:
            return False

    async def _picture(self) -> JsonObject:
        jobs = await self.client.list(PADDLE_JOBS, self.namespace)
        return {each["metadata"]["name"]: each.get("status") for each in jobs.items}
