"""One fault at every call of an operator, one history for each, compared with the history without it.

    python tests/sim/every_call.py SCENARIO FAULT NUMBER      one of them again

A scenario is a job's life without chance. The undisturbed history says how many requests the operator sends
and how many events its watches deliver. Then each fault strikes each of them once: the operator dies before
or after the request, goes on without its answer, or is cut off while another one takes over; events come
late, twice, or not at all because the watch has to begin again. Every history must come to the same end.
"""

from __future__ import annotations

import asyncio
import enum
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from paddlejob.api.meta import JsonObject
from paddlejob.core.gang.model import Scheduling
from paddlejob.core.snapshot import Settings
from paddlejob.kube.client import Client
from paddlejob.kube.errors import TransportError
from paddlejob.kube.lease import LeaderElector, LeaseLostError
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES
from paddlejob.kube.transport import Response, Stream, Transport
from paddlejob.operator.resources import PADDLE_JOBS, VOLCANO_POD_GROUPS
from paddlejob.operator.settings import OperatorSettings
from paddlejob.testing import virtual_loop
from paddlejob.testing.apiserver import fake_refusals, fake_watch
from paddlejob.testing.apiserver.fake_api import ApiServer
from paddlejob.testing.build import JobBuilder, job
from paddlejob.testing.kubelet.kubelet import Kubelet
from paddlejob.testing.kubelet.outcomes import Exit, Outcome, RunForever
from paddlejob.testing.operator import Operator
from paddlejob.testing.volcano import Volcano
from sim.gangs import VOLCANO_CRD
from sim.simulation import DEFINITION, silence

TRAINING_SECONDS = 300.0
SETTLE_SECONDS = 600.0
LATE_SECONDS = 20.0
BEHIND_SECONDS = 30.0
"""Longer than it takes to take over."""
OUTAGE_SECONDS = 60.0
SUBMITTED_AFTER_SECONDS = 5.0
"""When all watches are open."""
UNCOUNTED = ("/leases", "/leases/operator", "/apis/scheduling.volcano.sh/v1beta1")
"""Requests that come every few seconds, whatever happens to the job."""


class Fault(enum.StrEnum):
    """What goes wrong, once."""

    CRASH_BEFORE = "crash before a request"
    CRASH_AFTER = "crash after a request"
    NOT_SENT = "a request that is not sent"
    NO_ANSWER = "a request without an answer"
    SENT_TWICE = "a write that arrives twice"
    CONFLICT = "a write that somebody else forestalls"
    OUTAGE = "no network from a request on, and another operator takes over"
    LATE_STANDBY = "the same, and the other operator's watch of pods is behind"
    EVENT_LATE = "an event that comes late"
    EVENT_TWICE = "an event that comes twice"
    EVENT_MISSED = "an event that is missed: the watch begins again"

    @property
    def needs_standby(self) -> bool:
        """Whether there are two operators, which share a lease."""
        return self in (Fault.OUTAGE, Fault.LATE_STANDBY)

    @property
    def is_about_events(self) -> bool:
        """Whether it strikes what a watch delivers."""
        return self in (Fault.EVENT_LATE, Fault.EVENT_TWICE, Fault.EVENT_MISSED)


class Scenario(msgspec.Struct, frozen=True):
    """A job, and what its user does with it."""

    job: JobBuilder
    edits: tuple[tuple[float, JsonObject], ...] = ()
    """When, and how the spec is patched."""
    fails_first: str = ""
    """The pod that fails in the first attempt."""
    in_volcano: bool = False


SCENARIOS = {
    "parameter servers": Scenario(job().ps(2).worker(2)),
    "collective": Scenario(job().worker(3)),
    "services": Scenario(job().ps(1).worker(2).spec(intranet="Service")),
    "host network": Scenario(job().ps(1).worker(2).spec(intranet="Host")),
    "a restart": Scenario(job().worker(2).spec(backoffLimit=3), fails_first="demo-worker-1"),
    "a replaced worker": Scenario(
        job().ps(1).worker(2).spec(withGloo=0, backoffLimit=3), fails_first="demo-worker-1"
    ),
    "a gang": Scenario(job().ps(1).worker(2), in_volcano=True),
    "suspended and resumed": Scenario(
        job().worker(2), edits=((120.0, {"suspend": True}), (300.0, {"suspend": False}))
    ),
    "scaled": Scenario(
        job().worker(2).spec(elastic=1),
        edits=((120.0, {"worker": {"replicas": 3}}), (300.0, {"worker": {"replicas": 1}})),
    ),
}


class End(msgspec.Struct, frozen=True):
    """What has become of the job and of all that belongs to it."""

    phase: str
    restarts: int
    attempt: int
    pods: dict[str, str]
    others: tuple[str, ...]
    """Services, config maps and gangs."""
    starts: dict[str, int]
    """How often the container of each pod was started."""


class Wire:
    """Counts what passes between the operators and the server, and lets one thing go wrong."""

    def __init__(self, server: ApiServer, fault: Fault | None = None, number: int = -1) -> None:
        self.server = server
        self.requests = self.events = 0
        self.struck = False
        self.crash: Callable[[], object] = lambda: None
        self.is_down = False
        self._fault = fault
        self._number = number

    def request_fault(self, method: str) -> Fault | None:
        """Count a request, and return what happens to it."""
        number, fault = self.requests, self._fault
        self.requests += 1
        if fault is None or fault.is_about_events:
            return None
        if number != self._number or not _applies(fault, method):
            return None
        self.struck = True
        return fault

    def event_fault(self) -> Fault | None:
        """Count an event, and return what happens to it."""
        number, self.events = self.events, self.events + 1
        if self._fault is None or not self._fault.is_about_events or number != self._number:
            return None
        self.struck = True
        return self._fault


def _applies(fault: Fault, method: str) -> bool:
    match fault:
        case Fault.SENT_TWICE:
            return method != "GET"
        case Fault.CONFLICT:
            return method in ("PUT", "PATCH")
    return True


class WiredTransport:
    """A `Transport` of one life of an operator."""

    def __init__(self, wire: Wire, identity: str, *, is_struck: bool, is_behind: bool) -> None:
        self._wire = wire
        self._inner: Transport = wire.server.transport(identity, latency_seconds=(0.001, 0.05))
        self._is_struck = is_struck
        """Whether the fault may strike here; the second operator is left alone."""
        self._is_behind = is_behind
        self._is_dead = False

    def kill(self) -> None:
        """Answer nobody from now on."""
        self._is_dead = True

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, **options: Any
    ) -> Response:
        """Send one request, unless it is the one."""
        self._check()
        counts = self._is_struck and not path.endswith(UNCOUNTED)
        fault = self._wire.request_fault(method) if counts else None

        async def send() -> Response:
            return await self._inner.request(method, path, query=query, **options)

        match fault:
            case Fault.CRASH_BEFORE:
                self._die()
            case Fault.CRASH_AFTER:
                await send()
                self._die()
            case Fault.NOT_SENT:
                raise TransportError("connection refused")
            case Fault.NO_ANSWER:
                await send()
                raise TransportError("connection reset before the answer")
            case Fault.SENT_TWICE:
                await send()
            case Fault.CONFLICT:
                error = fake_refusals.refusal(409, "Conflict", "the object has been modified")
                return fake_refusals.response(error)
            case Fault.OUTAGE | Fault.LATE_STANDBY:
                self._wire.is_down = True
                asyncio.get_running_loop().call_later(OUTAGE_SECONDS, setattr, self._wire, "is_down", False)
                raise TransportError("network is unreachable")
        response = await send()
        self._check()
        return response

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, idle_timeout_seconds: float | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        """Open a watch."""
        return self._stream(path, query or {}, idle_timeout_seconds)

    @asynccontextmanager
    async def _stream(
        self, path: str, query: Mapping[str, str], idle_seconds: float | None
    ) -> AsyncIterator[Stream]:
        self._check()
        async with self._inner.stream(path, query=query, idle_timeout_seconds=idle_seconds) as opened:
            is_late = self._is_behind and path.endswith("/pods") and opened.status == 200
            late = BEHIND_SECONDS if is_late else 0.0
            yield _WiredStream(opened, self._wire if self._is_struck else None, self._check, late)

    async def close(self) -> None:
        """Close what is behind."""
        await self._inner.close()

    def _die(self) -> None:
        self._is_dead = True
        self._wire.crash()
        self._check()

    def _check(self) -> None:
        if self._is_dead or (self._is_struck and self._wire.is_down):
            raise TransportError("network is unreachable")


class _WiredStream:
    """A watch, one of whose events goes wrong."""

    def __init__(self, inner: Stream, wire: Wire | None, check: Callable[[], None], late: float) -> None:
        self.status, self.headers = inner.status, inner.headers
        self._inner = inner
        self._wire = wire
        self._check = check
        self._late_seconds = late

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield what the other side sends, event by event."""
        async for chunk in self._inner.chunks():
            await asyncio.sleep(self._late_seconds)
            self._check()
            for line in chunk.splitlines(keepends=True):
                is_event = self.status == 200 and b'"BOOKMARK"' not in line
                match self._wire.event_fault() if self._wire and is_event else None:
                    case Fault.EVENT_LATE:
                        await asyncio.sleep(LATE_SECONDS)
                    case Fault.EVENT_TWICE:
                        yield line
                    case Fault.EVENT_MISSED:
                        yield fake_watch.error_line(fake_refusals.expired("too old resource version"))
                        return
                yield line


class History:
    """One history, from the job's creation until nothing is written any more."""

    def __init__(self, scenario: Scenario, fault: Fault | None = None, number: int = -1) -> None:
        self._scenario = scenario
        self._fault = fault
        self.server = ApiServer(rng=random.Random(0), streaming_list=False)
        self.server.install(DEFINITION)
        self.wire = Wire(self.server, fault, number)
        self._rng = random.Random(1)
        self._kubelet = Kubelet(
            Client(self.server.transport("kubelet")), behaviour=self._outcome, rng=random.Random(2), nodes=4
        )

    async def play(self) -> End:
        """Play it, and say how it ended."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._kubelet.run()), group.create_task(self._operators())]
            if self._scenario.in_volcano:
                self.server.install(VOLCANO_CRD)
                volcano = Volcano(Client(self.server.transport("volcano")), capacity={"cpu": "100"})
                tasks.append(group.create_task(volcano.run()))
            await asyncio.sleep(SUBMITTED_AFTER_SECONDS)
            manifest = json.loads(json.dumps(self._scenario.job.manifest))
            manifest["metadata"] = {"name": "demo", "namespace": "default"}
            self.server.create(PADDLE_JOBS, manifest, identity="user")
            for at, edit in self._scenario.edits:
                await asyncio.sleep(at - asyncio.get_running_loop().time())
                self.server.patch(PADDLE_JOBS, "default", "demo", {"spec": edit}, identity="user")
            await self._settle()
            for task in tasks:
                task.cancel()
        return self._end()

    def _outcome(self, pod: JsonObject, container: str, restarts: int) -> Outcome:
        name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
        if name == self._scenario.fails_first and labels["batch.paddlepaddle.org/attempt"] == "0":
            return Exit(137, 30.0)
        return RunForever() if "-ps-" in name else Exit(0, TRAINING_SECONDS)

    async def _settle(self) -> None:
        while True:
            version = self._version()
            await asyncio.sleep(SETTLE_SECONDS)
            if version == self._version():
                return
            assert asyncio.get_running_loop().time() < 86400, "the cluster does not come to rest"

    def _version(self) -> list[str]:
        """Return the versions of all objects but the lease, which is written as long as somebody leads."""
        resources = (PADDLE_JOBS, *self._owned)
        return [each["metadata"]["resourceVersion"] for one in resources for each in self.server.objects(one)]

    @property
    def _owned(self) -> tuple[Any, ...]:
        return (PODS, SERVICES, CONFIG_MAPS, *((VOLCANO_POD_GROUPS,) if self._scenario.in_volcano else ()))

    async def _operators(self) -> None:
        if self._fault is None or not self._fault.needs_standby:
            await self._lives("operator", is_struck=True)
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lives("operator-0", is_struck=True))
            await asyncio.sleep(1)
            group.create_task(self._lives("operator-1", is_struck=False))

    async def _lives(self, identity: str, *, is_struck: bool) -> None:
        """Run an operator, and another one whenever it has died or lost its lease."""
        for number in range(100):
            is_behind = self._fault is Fault.LATE_STANDBY and not is_struck
            transport = WiredTransport(self.wire, identity, is_struck=is_struck, is_behind=is_behind)
            life = asyncio.create_task(self._live(transport, f"{identity}-{number}"))
            if is_struck:
                self.wire.crash = life.cancel
            try:
                await asyncio.wait({life})
            finally:
                transport.kill()
                life.cancel()
            if not life.cancelled() and (error := life.exception()) and not isinstance(error, LeaseLostError):
                raise error
            await asyncio.sleep(1)

    async def _live(self, transport: WiredTransport, identity: str) -> None:
        scheduling = Scheduling.VOLCANO if self._scenario.in_volcano else Scheduling.AS_WRITTEN
        settings = OperatorSettings(jobs=Settings(scheduling=scheduling))
        client = Client(transport, rng=self._rng)
        elector = None
        if self._fault and self._fault.needs_standby:
            elector = LeaderElector(
                client,
                namespace="default",
                name="operator",
                identity=identity,
                rng=self._rng,
                now=virtual_loop.now,
            )
        await Operator(client, settings, rng=self._rng, elector=elector).run()

    def _end(self) -> End:
        status = self.server.get(PADDLE_JOBS, "default", "demo")["status"]
        others = [
            f"{resource.kind}/{each['metadata']['name']}"
            for resource in self._owned
            if resource is not PODS
            for each in self.server.objects(resource)
        ]
        return End(
            phase=status["phase"],
            restarts=status.get("restarts", 0),
            attempt=status.get("attempt", 0),
            pods={pod["metadata"]["name"]: pod["status"]["phase"] for pod in self.server.objects(PODS)},
            others=tuple(sorted(others)),
            starts=dict(sorted(Counter(start.pod for start in self._kubelet.starts).items())),
        )


def play(scenario: Scenario, fault: Fault | None = None, number: int = -1) -> tuple[End, Wire]:
    """Play one history."""

    async def main() -> tuple[End, Wire]:
        history = History(scenario, fault, number)
        return await history.play(), history.wire

    with silence():
        return virtual_loop.run(main(), seed=0, max_steps=3_000_000)


def check(scenario: str, fault: Fault) -> int:
    """Let a fault strike every call of a scenario; return how many histories that were.

    Raises AssertionError that names the first history with another end.
    """
    undisturbed, wire = play(SCENARIOS[scenario])
    assert undisturbed.phase == "Completed"
    if fault.needs_standby:
        with_standby, wire = play(SCENARIOS[scenario], fault)
        assert with_standby == undisturbed, f"{scenario} with a standby\n{undisturbed}\n{with_standby}"
    histories = 0
    for number in range(wire.events if fault.is_about_events else wire.requests):
        again = f"python tests/sim/every_call.py '{scenario}' '{fault}' {number}"
        try:
            end, struck = play(SCENARIOS[scenario], fault, number)
        except Exception as error:
            raise AssertionError(f"{again}: {error!r}") from error
        assert not struck.struck or end == undisturbed, f"{again}\n{undisturbed}\n{end}"
        histories += struck.struck
    return histories


def main() -> None:
    """Play one history beside the undisturbed one."""
    scenario, fault, number = sys.argv[1:]
    print(play(SCENARIOS[scenario])[0])
    print(play(SCENARIOS[scenario], Fault(fault), int(number))[0])


if __name__ == "__main__":
    main()
