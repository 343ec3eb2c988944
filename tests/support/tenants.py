"""Tenants that share one operator: a quiet one that is measured, and others that do their worst."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections import Counter
from collections.abc import Awaitable, Callable

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.core.snapshot import Settings
from paddlejob.history.record import RECORD_KEY, unpack
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, EVENTS, PODS
from paddlejob.operator.settings import HistorySettings, OperatorSettings
from simkube.build import job
from simkube.faults.tenants import LimitedTransport
from simkube.kubelet.outcomes import Exit, ExitWhenReleased, Outcome, RunForever, Unschedulable
from simkube.kubelet.pod_worker import Timing
from simkube.operator import Operator
from tests.operator.progress_stage import line
from tests.support.simulated_cluster import SimulatedCluster

QUIET = "quiet"
ROUNDS = 3
BLOCKS = 100
HOST_PORTS = (40000, 40000 + BLOCKS * names.PORTS_PER_POD - 1)
STEADY = Timing(
    start_seconds=(1.0, 1.0),
    stop_seconds=(0.2, 0.2),
    init_seconds=(1.0, 1.0),
    config_retry_seconds=(10.0, 10.0),
)


class Tenants:
    """A quiet tenant that runs one job after the other, and others that do their worst."""

    def __init__(self) -> None:
        self.released: dict[str, asyncio.Event] = {}
        self.outcomes: dict[str, Outcome] = {}
        """What becomes of the pods of a noisy tenant, by namespace."""
        self.cluster = SimulatedCluster(behaviour=self._behaviour, timing=STEADY)
        self.server = self.cluster.server
        self.clock = asyncio.get_running_loop().time

    def _behaviour(self, pod: JsonObject, _container: str, _restarts: int) -> Outcome:
        metadata = pod["metadata"]
        if metadata["namespace"] != QUIET:
            return self.outcomes.get(metadata["namespace"], RunForever())
        event = self.released.setdefault(metadata["name"].partition("-")[0], asyncio.Event())
        return ExitWhenReleased(event, Exit(1))

    async def play(self, *worst: Worst) -> dict[str, float]:
        """Add a tenant for each behaviour; return how long each thing took for the quiet one, at most."""
        client = Client(LimitedTransport(self.server.transport("operator"), request_seconds=0.02))
        settings = OperatorSettings(history=HistorySettings(), jobs=Settings(host_port_range=HOST_PORTS))
        operator = Operator(client, settings, reads_progress=True)
        tasks = [asyncio.create_task(operator.run()), asyncio.create_task(self.cluster.kubelet.run())]
        await asyncio.sleep(5)
        for number, behave in enumerate(worst):
            tasks.append(asyncio.create_task(behave(self, f"noisy-{number}")))
        await asyncio.sleep(60)
        longest: Counter[str] = Counter()
        for number in range(ROUNDS):
            longest |= await self._run_quiet_job(f"round{number}")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            assert task.cancelled() or task.exception() is None
        return dict(longest)

    async def _run_quiet_job(self, name: str) -> Counter[str]:
        taken: Counter[str] = Counter()
        built = job(name, QUIET).worker(2).spec(intranet="Host", cleanPodPolicy="Never", backoffLimit=0)
        self.cluster.submit(built)
        taken["Running"] = await self._seconds_until(lambda: self._status(name).get("phase") == "Running")
        taken["event"] = await self._seconds_until(lambda: f"{name} Running" in self._events())
        pod = self.server.get(PODS, QUIET, f"{name}-worker-0")
        assert pod is not None
        self.server.container_logs.write(pod, f"{line(10)}\n".encode())
        taken["first step"] = await self._seconds_until(lambda: self._step(name) == 10)
        self.server.container_logs.write(pod, f"{line(20)}\n".encode())
        taken["next step"] = await self._seconds_until(lambda: self._step(name) == 20)
        self.released[name].set()
        taken["Failed"] = await self._seconds_until(lambda: self._status(name).get("phase") == "Failed")
        taken["record"] = await self._seconds_until(lambda: line(20) in self._recorded_log(name))
        return taken

    async def _seconds_until(self, holds: Callable[[], bool]) -> float:
        began = self.clock()
        while not holds():
            assert self.clock() < began + 1000, "not within 1000 s"
            await asyncio.sleep(0.1)
        return self.clock() - began

    def _status(self, name: str) -> JsonObject:
        return (self.server.get(PADDLE_JOBS, QUIET, name) or {}).get("status") or {}

    def _step(self, name: str) -> int:
        return (self._status(name).get("progress") or {}).get("step", 0)

    def _events(self) -> set[str]:
        found = self.server.objects(EVENTS, QUIET)
        return {f"{each['involvedObject']['name']} {each['reason']}" for each in found}

    def _recorded_log(self, name: str) -> str:
        stored = [
            record
            for each in self.server.objects(CONFIG_MAPS, QUIET)
            if names.LABEL_HISTORY in each["metadata"].get("labels", {})
            and (record := unpack(b64decode(each["binaryData"][RECORD_KEY]))) is not None
            and record.summary.name == name
        ]
        return "".join(rank.text for each in stored for attempt in each.attempts for rank in attempt.ranks)


Worst = Callable[[Tenants, str], Awaitable[None]]
"""The behaviour of a tenant with a namespace."""


def submit(tenants: Tenants, namespace: str, count: int, replicas: int = 1, **spec: object) -> None:
    """Create jobs of a noisy tenant."""
    for number in range(count):
        tenants.cluster.submit(job(f"job-{number}", namespace).worker(replicas).spec(**spec))


def slow_webhook(plural: str, seconds: float, jobs: int) -> Worst:
    """Return a tenant with jobs of 8 pods and a slow admission webhook for one resource."""

    async def behave(tenants: Tenants, namespace: str) -> None:
        tenants.server.tenant_faults.slow_webhooks[namespace, plural] = seconds
        submit(tenants, namespace, jobs, replicas=8)

    return behave


async def silent_node(tenants: Tenants, namespace: str) -> None:
    """Run jobs on a node that sends no log."""
    tenants.server.tenant_faults.silent_nodes.add("silent")
    for number in range(20):
        tenants.cluster.submit(job(f"job-{number}", namespace).worker(1, pod={"nodeName": "silent"}))


async def throttled_events(tenants: Tenants, namespace: str) -> None:
    """Run jobs with more events than the server takes."""
    tenants.server.tenant_faults.throttled.add((namespace, "events"))
    submit(tenants, namespace, 300)


async def host_ports(tenants: Tenants, namespace: str) -> None:
    """Submit more jobs with host ports than there are blocks; their pods never start."""
    tenants.outcomes[namespace] = Unschedulable()
    submit(tenants, namespace, 2 * BLOCKS, intranet="Host")


async def failing_every_second(tenants: Tenants, namespace: str) -> None:
    """Submit a job every second that fails."""
    tenants.outcomes[namespace] = Exit(1, after_seconds=0.1)
    for number in range(3600):
        built = job(f"job-{number}", namespace).worker(4).spec(backoffLimit=0, ttlSecondsAfterFinished=30)
        tenants.cluster.submit(built)
        await asyncio.sleep(1)


async def slow_records(tenants: Tenants, namespace: str) -> None:
    """Do the same while an admission webhook delays records."""
    tenants.server.tenant_faults.slow_webhooks[namespace, "configmaps"] = 29.0
    await failing_every_second(tenants, namespace)


async def slow_progress(tenants: Tenants, namespace: str) -> None:
    """Train while an admission webhook delays the progress."""
    submit(tenants, namespace, 100)
    await asyncio.sleep(30)
    tenants.server.tenant_faults.slow_webhooks[namespace, "paddlejobs"] = 10.0
    for step in range(10, 100_000, 10):
        for pod in tenants.server.objects(PODS, namespace):
            tenants.server.container_logs.write(pod, f"{line(step)}\n".encode())
        await asyncio.sleep(10)


WORST = {
    "pods whose admission takes 10 s": slow_webhook("pods", 10.0, jobs=100),
    "pods whose admission takes 30 s": slow_webhook("pods", 30.0, jobs=100),
    "jobs whose admission takes 10 s": slow_webhook("paddlejobs", 10.0, jobs=100),
    "logs on a silent node": silent_node,
    "events that are throttled": throttled_events,
    "more jobs than blocks of host ports": host_ports,
    "a job that fails every second": failing_every_second,
    "records whose admission takes 29 s": slow_records,
    "progress whose admission takes 10 s": slow_progress,
}
