"""One tenant with many jobs does not keep the others waiting, though all share one slow API server."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.core.snapshot import Settings
from paddlejob.history.record import RECORD_KEY, unpack
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, EVENTS, PODS
from paddlejob.operator.resources import PADDLE_JOBS
from paddlejob.operator.settings import HistorySettings, OperatorSettings
from paddlejob.testing import virtual_loop
from paddlejob.testing.build import job
from paddlejob.testing.faults.tenants import LimitedTransport
from paddlejob.testing.kubelet.outcomes import Exit, ExitWhenReleased, Outcome, RunForever, Unschedulable
from paddlejob.testing.kubelet.pod_worker import Timing
from paddlejob.testing.operator import Operator
from tests.operator.progress_stage import line
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.waiting import eventually_async

REQUEST_SECONDS = 0.15
"""Over all connections that makes about 200 a second, as a server on two cores answers."""
JOBS = 500
LATE_SECONDS = 2.0


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(OperatorSettings(), id="defaults"),
        # Then there are many more requests than connections.
        pytest.param(OperatorSettings(workers=100), id="many workers"),
    ],
)
@simulated
async def test_many_jobs_of_one_tenant_delay_those_of_others_by_less_than_two_seconds(cluster, settings):
    client = Client(LimitedTransport(cluster.server.transport("operator"), REQUEST_SECONDS))
    operator = asyncio.create_task(Operator(client, settings).run())
    loop = asyncio.get_running_loop()

    async def seconds_to_pods(name: str, namespace: str) -> float:
        began = loop.time()
        cluster.submit(job(name, namespace).ps(2).worker(2))
        await cluster.until(lambda: sum(pod.startswith(name) for pod in cluster.pod_names()) == 4)
        return loop.time() - began

    await asyncio.sleep(5)
    alone = await seconds_to_pods("alone", "small")
    for number in range(JOBS):
        cluster.submit(job(f"many-{number}", "large").ps(2).worker(2))
    delays = []
    for number in range(3):
        delays.append(await seconds_to_pods(f"beside-{number}", "small") - alone)
        await asyncio.sleep(1)
    assert max(delays) < LATE_SECONDS, delays
    assert len(cluster.pod_names()) < 4 * JOBS, "the many jobs were over before the others were measured"
    operator.cancel()
    await asyncio.wait([operator])


QUIET, NOISY = "quiet", "noisy"
ALLOWED_SECONDS = 1.0
"""How much longer anything may take for the quiet tenant because of the noisy one."""
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
    """A tenant that runs one job after the other, and one that does its worst, under one operator."""

    def __init__(self) -> None:
        self.released: dict[str, asyncio.Event] = {}
        self.outcome_of_noisy: Outcome = RunForever()
        self.cluster = SimulatedCluster(behaviour=self._behaviour, timing=STEADY)
        self.server = self.cluster.server
        self.clock = asyncio.get_running_loop().time

    def _behaviour(self, pod: JsonObject, _container: str, _restarts: int) -> Outcome:
        metadata = pod["metadata"]
        if metadata["namespace"] == NOISY:
            return self.outcome_of_noisy
        event = self.released.setdefault(metadata["name"].partition("-")[0], asyncio.Event())
        return ExitWhenReleased(event, Exit(1))

    async def play(self, worst: Callable[[Tenants], Awaitable[None]] | None) -> dict[str, float]:
        """Return how long each thing took for the quiet tenant, at most."""
        client = Client(LimitedTransport(self.server.transport("operator"), request_seconds=0.02))
        settings = OperatorSettings(history=HistorySettings(), jobs=Settings(host_port_range=HOST_PORTS))
        operator = Operator(client, settings, reads_progress=True)
        tasks = [asyncio.create_task(operator.run()), asyncio.create_task(self.cluster.kubelet.run())]
        await asyncio.sleep(5)
        if worst is not None:
            tasks.append(asyncio.create_task(worst(self)))
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
        await eventually_async(holds, within_seconds=1000)
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


def submit_noisy(tenants: Tenants, count: int, replicas: int = 1, **spec: object) -> None:
    for number in range(count):
        tenants.cluster.submit(job(f"job-{number}", NOISY).worker(replicas).spec(**spec))


def slow_webhook(plural: str, seconds: float, jobs: int) -> Callable[[Tenants], Awaitable[None]]:
    async def behave(tenants: Tenants) -> None:
        tenants.server.tenant_faults.slow_webhooks[NOISY, plural] = seconds
        submit_noisy(tenants, jobs, replicas=8)

    return behave


async def silent_node(tenants: Tenants) -> None:
    tenants.server.tenant_faults.silent_nodes.add("silent")
    for number in range(20):
        tenants.cluster.submit(job(f"job-{number}", NOISY).worker(1, pod={"nodeName": "silent"}))


async def throttled_events(tenants: Tenants) -> None:
    tenants.server.tenant_faults.throttled.add((NOISY, "events"))
    submit_noisy(tenants, 300)


async def host_ports(tenants: Tenants) -> None:
    tenants.outcome_of_noisy = Unschedulable()
    submit_noisy(tenants, 2 * BLOCKS, intranet="Host")


async def failing_every_second(tenants: Tenants) -> None:
    tenants.outcome_of_noisy = Exit(1, after_seconds=0.1)
    for number in range(3600):
        built = job(f"job-{number}", NOISY).worker(8).spec(backoffLimit=0, ttlSecondsAfterFinished=60)
        tenants.cluster.submit(built)
        await asyncio.sleep(1)


async def slow_records(tenants: Tenants) -> None:
    tenants.server.tenant_faults.slow_webhooks[NOISY, "configmaps"] = 29.0
    await failing_every_second(tenants)


async def slow_progress(tenants: Tenants) -> None:
    submit_noisy(tenants, 100)
    await asyncio.sleep(30)
    tenants.server.tenant_faults.slow_webhooks[NOISY, "paddlejobs"] = 10.0
    for step in range(10, 100_000, 10):
        for pod in tenants.server.objects(PODS, NOISY):
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


@pytest.fixture(scope="module")
def alone() -> dict[str, float]:
    """How long each thing takes while there is no other tenant."""

    async def main() -> dict[str, float]:
        return await Tenants().play(None)

    return virtual_loop.run(main())


@pytest.mark.parametrize("worst", WORST.values(), ids=WORST.keys())
@simulated
async def test_a_tenant_is_as_fast_beside_one_with(alone, worst):
    beside = await Tenants().play(worst)
    late = {name: beside[name] - alone[name] for name in alone}
    assert max(late.values()) <= ALLOWED_SECONDS, late
