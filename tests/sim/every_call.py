"""One fault at every call of an operator, one history for each, compared with the history without it.

    python tests/sim/every_call.py SCENARIO FAULT NUMBER      one of them again

A scenario is a job's life without chance. The undisturbed history says how many requests the operator sends
and how many events its watches deliver. Then each fault strikes each of them once: the operator dies before
or after the request, goes on without its answer, or is cut off while another one takes over; the lease goes
to another one while it works; what it reads is old; events come late, twice, or not at all because the watch
has to begin again; a report of a supervisor or the answer is lost, or a report arrives twice. Every history
must come to the same end.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS, VOLCANO_POD_GROUPS
from paddlejob.core.gang.model import Scheduling
from paddlejob.core.snapshot import Settings
from paddlejob.kube.client import Client
from paddlejob.kube.lease import LeaderElector, LeaseLostError
from paddlejob.kube.resource import CONFIG_MAPS, LEASES, PODS, SERVICES
from paddlejob.operator.settings import OperatorSettings
from sim.simulation import DEFINITION, silence
from sim.supervised import RECORDER
from sim.wire import LATE_SECONDS, LEASE, Fault, Wire, WiredTransport
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from simkube.apiserver.store import Change
from simkube.build import JobBuilder, job
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.outcomes import Evict, Exit, Outcome, RunForever
from simkube.kubelet.program import ANSWER_SECONDS, NoAnswerError, Supervision
from simkube.operator import Operator
from simkube.switchboard import Switchboard
from simkube.volcano import Volcano
from support.inherited import Inheritance
from tests.support.definitions import VOLCANO_CRD
from tests.support.programs import broken_rules

TRAINING_SECONDS = 300.0
SETTLE_SECONDS = 600.0
SUBMITTED_AFTER_SECONDS = 5.0
"""When all watches are open."""
UPGRADED_AFTER_SECONDS = 60.0
"""When pods of an earlier operator run."""

NEVER = {"restartPolicy": "Never"}
"""The kubelet's own restarts leave nothing to a supervisor."""


class Scenario(msgspec.Struct, frozen=True):
    """A job, and the actions of its user."""

    job: JobBuilder
    edits: tuple[tuple[float, JsonObject], ...] = ()
    """When, and how the spec is patched."""
    fails_first: str = ""
    """The pod that fails in the first attempt."""
    in_volcano: bool = False
    is_inherited: bool = False
    """Whether an earlier operator made the pods, and was replaced by this one while they ran."""
    is_supervised: bool = False
    """Whether the pods have a supervisor, which restarts their program in place."""
    first_failure: Outcome = Exit(137, 30.0)


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
    "a restart in place": Scenario(
        job().worker(2).spec(backoffLimit=3), fails_first="demo-worker-1", is_supervised=True
    ),
    "a server that restarts in place": Scenario(
        job().ps(2).worker(2, pod=NEVER).spec(backoffLimit=3), fails_first="demo-ps-1", is_supervised=True
    ),
    "a new pod beside programs that restart in place": Scenario(
        job().worker(3).spec(backoffLimit=3),
        fails_first="demo-worker-1",
        is_supervised=True,
        first_failure=Evict(30.0),
    ),
    "upgraded": Scenario(job().ps(1).worker(2), is_inherited=True),
    "upgraded, and a restart": Scenario(
        job().ps(1).worker(2).spec(backoffLimit=3), fails_first="demo-worker-1", is_inherited=True
    ),
}


class End(msgspec.Struct, frozen=True):
    """The final state of the job and its objects."""

    phase: str
    restarts: int
    attempt: int
    pods: dict[str, str]
    others: tuple[str, ...]
    """Services, config maps and gangs."""
    starts: dict[str, int]
    """How often the container of each pod was started."""


class History:
    """One history, from the job's creation until the last write."""

    def __init__(self, scenario: Scenario, fault: Fault | None = None, number: int = -1) -> None:
        self._scenario = scenario
        self._fault = fault
        self.server = ApiServer(rng=random.Random(0), streaming_list=False)
        self.server.install(DEFINITION)
        self._changed_at = 0.0
        self.server.store.observers.append(self._note_change)
        self.wire = Wire(self.server, fault, number)
        self._rng = random.Random(1)
        self._switchboard = Switchboard(random.Random(3))
        self._supervision = Supervision(self._attend, random.Random(4))
        self._kubelet = Kubelet(
            Client(self.server.transport("kubelet")),
            behaviour=self._outcome,
            rng=random.Random(2),
            nodes=4,
            supervision=self._supervision if scenario.is_supervised else None,
        )

    async def play(self) -> End:
        """Play it and return its outcome."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._kubelet.run()), group.create_task(self._operators())]
            if self._scenario.in_volcano:
                self.server.install(VOLCANO_CRD)
                volcano = Volcano(Client(self.server.transport("volcano")), capacity={"cpu": "100"})
                tasks.append(group.create_task(volcano.run()))
            if self._scenario.is_inherited:
                await self._leave()
            else:
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
        assert not (broken := broken_rules(self._supervision.runs)), broken
        return self._end()

    async def _leave(self) -> None:
        """Write the objects that the earlier operator wrote for the job."""
        left = Inheritance(Client(self.server.transport("earlier-operator")), "default", "demo")
        spec = json.loads(json.dumps(self._scenario.job.manifest["spec"]))
        roles = {role: spec.pop(role)["replicas"] for role in ("ps", "worker")}
        await left.job(roles, **spec)
        await left.config()
        for role, count in roles.items():
            for index in range(count):
                await left.pod(role, index)
        await left.status(phase="Running", mode="PS")

    def _outcome(self, pod: JsonObject, container: str, restarts: int) -> Outcome:
        name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
        if container != "paddle":
            return Exit(0, 1.0)
        if name == self._scenario.fails_first and labels.get(names.LABEL_ATTEMPT, "0") == "0":
            return Exit(137, 90.0) if self._scenario.is_inherited else self._scenario.first_failure
        return RunForever() if "-ps-" in name else Exit(0, TRAINING_SECONDS)

    async def _settle(self) -> None:
        """Wait until nothing has changed for a long time."""
        clock = asyncio.get_running_loop().time
        while (rests_at := self._changed_at + SETTLE_SECONDS) > clock():
            assert clock() < 86400, "the cluster does not come to rest"
            await asyncio.sleep(rests_at - clock())

    def _note_change(self, change: Change) -> None:
        # The leader keeps writing the lease.
        if change.record.type.resource != LEASES:
            self._changed_at = asyncio.get_running_loop().time()

    @property
    def _owned(self) -> tuple[Any, ...]:
        return (PODS, SERVICES, CONFIG_MAPS, *((VOLCANO_POD_GROUPS,) if self._scenario.in_volcano else ()))

    async def _operators(self) -> None:
        if self._scenario.is_inherited:
            await asyncio.sleep(UPGRADED_AFTER_SECONDS)
        if self._fault is None or not self._fault.needs_standby:
            await self._lives("operator", is_struck=True)
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lives("operator-0", is_struck=True))
            await asyncio.sleep(1)
            group.create_task(self._lives("operator-1", is_struck=self._fault.moves_lease))

    async def _lives(self, name: str, *, is_struck: bool) -> None:
        """Run an operator, and another one whenever it has died or lost its lease."""
        for number in range(100):
            transport = WiredTransport(
                self.wire,
                name,
                is_struck=is_struck,
                is_behind=self._fault is Fault.LATE_STANDBY and not is_struck,
                reads_old=self._fault is Fault.OLD_LISTS and number > 0,
            )
            identity = self.wire.identities[name] = f"{name}-{number}"
            life = asyncio.create_task(self._live(transport, identity))
            if is_struck:
                self.wire.crash = life.cancel
            try:
                await asyncio.wait({life})
            finally:
                transport.kill()
                life.cancel()
                del self.wire.identities[name]
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
                name=LEASE,
                identity=identity,
                rng=self._rng,
                now=virtual_loop.now,
            )
        recorder = RECORDER if self._scenario.is_supervised else None
        operator = Operator(client, settings, rng=self._rng, elector=elector, recorder=recorder)
        leading = asyncio.create_task(self._answer_supervisors(operator, elector))
        try:
            await operator.run()
        finally:
            leading.cancel()
            self._switchboard.disconnect(operator)

    async def _attend(self, pod: JsonObject, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a supervisor, unless the fault is about this request."""
        fault = self.wire.report_fault()
        if fault is Fault.REPORT_LOST:
            await asyncio.sleep(ANSWER_SECONDS)
            raise NoAnswerError
        answer = await self._switchboard.attend(pod, body)
        if fault is Fault.ORDER_LOST:
            raise NoAnswerError
        if fault is Fault.REPORT_AGAIN:
            self._switchboard.send_later(pod, body, LATE_SECONDS)
        return answer

    async def _answer_supervisors(self, operator: Operator, elector: LeaderElector | None) -> None:
        """Connect the supervisors with the operator when it leads."""
        while elector is not None and not elector.is_leader:
            await asyncio.sleep(1)
        self._switchboard.connect(operator)

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
    for number in range(wire.calls(fault)):
        again = f"python tests/sim/every_call.py '{scenario}' '{fault}' {number}"
        try:
            end, struck = play(SCENARIOS[scenario], fault, number)
        except Exception as error:
            raise AssertionError(f"{again}: {error!r}") from error
        assert not struck.struck or end == undisturbed, f"{again}\n{undisturbed}\n{end}"
        histories += struck.struck
    return histories


def main() -> None:
    """Play one history and compare it with the undisturbed one."""
    scenario, fault, number = sys.argv[1:]
    print(play(SCENARIOS[scenario])[0])
    print(play(SCENARIOS[scenario], Fault(fault), int(number))[0])


if __name__ == "__main__":
    main()
