"""Plays a scenario: operators, kubelet and users on one in-memory API server, under virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import msgspec

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.core.gang.model import Scheduling
from paddlejob.core.snapshot import Settings
from paddlejob.kube.client import Client
from paddlejob.kube.errors import ApiError
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from paddlejob.operator.settings import HistorySettings, OperatorSettings
from sim import gangs, invariants
from sim.bystander import RECOVERY_SECONDS, Bystander
from sim.deadlines import LIMITS, Deadlines
from sim.evidence import Evidence
from sim.hostile_tenant import BURST_SECONDS, FatObjects, HostileTenant, SilentNodes
from sim.memory import Memory
from sim.pace import Pace
from sim.scenario import DEFINITION, Deed, Scenario, behaviour, draw
from sim.supervised import RECORDER, Supervised
from simkube import virtual_loop
from simkube.apiserver.request_log import WriteRecord
from simkube.apiserver.server import ApiServer
from simkube.faults.tenants import LimitedTransport
from simkube.faults.transport import Faults, FaultyTransport
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.program import Supervision
from simkube.operator import Operator
from simkube.switchboard import Switchboard
from tests.support.programs import broken_rules

SETTLE_SECONDS = 900.0
"""Long enough for every backoff, deadline and toleration after the last fault."""
QUIET_SECONDS = 300.0

WORKERS = 4
CONNECTIONS = 6
"""Fewer than in a real operator, so that a few jobs of a tenant need more than there are."""

SEEDS = int(os.environ.get("PADDLEJOB_SEEDS", "300"))
"""Number of histories that the tests play; `make test-seeds` plays more."""


class Simulation:
    """One history."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.rng = random.Random(f"simulation {scenario.seed}")
        self.server = ApiServer(
            rng=random.Random(f"server {scenario.seed}"), streaming_list=scenario.streaming_list
        )
        if scenario.old_definition is None:
            self.server.install(DEFINITION)
        else:
            scenario.old_definition.install(self.server, DEFINITION)
        self.faults = Faults(random.Random(f"faults {scenario.seed}"), scenario.rates)
        self._supervised = self._supervision_ingredient()
        self.switchboard = (
            Switchboard(random.Random(f"lines {scenario.seed}"), self._supervised.faults)
            if self._supervised
            else None
        )
        self.supervision = (
            Supervision(
                self.switchboard.attend,
                random.Random(f"supervisors {scenario.seed}"),
                self._supervised.dies_after,
            )
            if self._supervised and self.switchboard
            else None
        )
        self.kubelet = Kubelet(
            Client(self.server.transport("kubelet"), rng=self.rng),
            behaviour=behaviour(scenario),
            rng=random.Random(f"kubelet {scenario.seed}"),
            nodes=8,
            ip_family=scenario.ip_family,
            supervision=self.supervision,
            now=_clock(scenario.node_skew_seconds),
        )
        self.gangs = gangs.Scheduler(scenario.gangs, self.server, nodes=self.kubelet.pool.names)
        self.deadlines = Deadlines(self.server)
        self.invariants = invariants.Invariants(
            self.server, operators=scenario.operators, users_groups=scenario.gangs.users_groups
        )
        self.pace = Pace(self.server, operators=scenario.operators)
        self.evidence = Evidence(self.server)
        self.bystander = Bystander(self.server, reads_progress=self._has(SilentNodes))
        self.memory = Memory(self.server) if self._has(FatObjects) else None
        # Nodes and schedulers write pods without the webhooks of a tenant, as kubelets do on most clusters.
        self.server.tenant_faults.exempt |= {"kubelet", "gang-scheduler"}
        self._crashes = list(scenario.crashes)
        self._transports: dict[int, FaultyTransport] = {}
        """The current transport of each operator."""
        self._life: asyncio.Task[None] | None = None
        """The running task of the first operator."""
        self._changed_at = 0.0
        self.server.store.observers.append(self._note_change)
        self._broken: list[AssertionError] = []
        self.server.log.on_write[:] = [self._remembering(rule) for rule in self.server.log.on_write]

    async def play(self) -> None:
        """Play to the end, and check the rules."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.kubelet.run(), name="kubelet")]
            tasks += [group.create_task(self._operator(number)) for number in range(self.scenario.operators)]
            tasks.append(group.create_task(self.gangs.run(), name="gang scheduler"))
            users = group.create_task(self._users())
            mistake = group.create_task(self._mistake())
            acts = [group.create_task(each.act(self)) for each in self.scenario.ingredients]
            upgrade = group.create_task(self._upgrade())
            persistent_fault = group.create_task(self.scenario.persistent_fault.delete_pods(self.server))
            if any(LIMITS & each["spec"].keys() for each in self.scenario.jobs):
                tasks.append(group.create_task(self.deadlines.watch()))
            looking = group.create_task(self.memory.look()) if self.memory else None
            await asyncio.sleep(self.scenario.heal_after_seconds)
            await users
            await persistent_fault
            await mistake
            await asyncio.gather(*acts)
            await upgrade
            self.faults.heal()
            if self._supervised is not None:
                self._supervised.heal(self)
            self.gangs.heal()
            self.deadlines.enforce()
            if self._has(HostileTenant):
                await self._measure_bystander()
            if looking is not None:
                looking.cancel()
            await self._settle()
            if await self._follow_advice():
                await self._settle()
            if self._has(HostileTenant):
                await self.bystander.measure_alone()
                await self._settle()
            before = len(self._operator_writes())
            await asyncio.sleep(QUIET_SECONDS)
            quiet = self._operator_writes()[before:]
            assert not quiet, f"a quiet cluster was written to: {quiet[:3]}"
            for task in tasks:
                task.cancel()
        self.raise_broken()
        for start in self.kubelet.starts:
            if not self.invariants.excuses(start):
                invariants.check_start(start)
        if self.supervision is not None:
            assert not (broken := broken_rules(self.supervision.runs)), broken[:5]
        invariants.check_end(self.server, self.scenario.gangs)
        invariants.check_records(self.server)
        self.evidence.check_end()
        if self.memory is not None:
            self.memory.check()

    def _supervision_ingredient(self) -> Supervised | None:
        """Return the faults of supervisors. Two operators without a lease would not share their reports."""
        found = (each for each in self.scenario.ingredients if isinstance(each, Supervised))
        return next(found, None) if self.scenario.operators == 1 else None

    def _has(self, kind: type[HostileTenant]) -> bool:
        return any(isinstance(each, kind) for each in self.scenario.ingredients)

    async def _measure_bystander(self) -> None:
        """Measure a job of another namespace while the hostile tenant does its worst, and end its faults."""
        self._crashes.clear()
        if self._transports:
            self._transports[0].crash_after(0, lambda: None)
        await asyncio.sleep(RECOVERY_SECONDS)
        for each in self.scenario.ingredients:
            if isinstance(each, HostileTenant):
                each.burst(self)
        await asyncio.sleep(BURST_SECONDS)
        try:
            await self.bystander.measure_beside()
        finally:
            # A broken rule looks like a failed write to the operator, and delays everything.
            self.raise_broken()
        if self.memory is not None:
            self.memory.check()
        for each in self.scenario.ingredients:
            each.heal(self)

    async def suffer(self, seconds: float) -> None:
        """Play for a time, without asking for an end."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(work)
                for work in (
                    self.kubelet.run(),
                    self._operator(0),
                    self._users(),
                    self.scenario.persistent_fault.delete_pods(self.server),
                )
            ]
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()
        self.raise_broken()

    def raise_broken(self) -> None:
        """Raise the first rule that was broken, if any was."""
        if self._broken:
            raise self._broken[0]

    def _remembering(self, rule: Callable[[WriteRecord], None]) -> Callable[[WriteRecord], None]:
        """Return a rule that remembers its violation; to the operator it looks like a failed write."""

        def check(write: WriteRecord) -> None:
            try:
                rule(write)
            except AssertionError as error:
                self._broken.append(error)
                raise

        return check

    async def _settle(self) -> None:
        """Wait until nothing has been written for a long time."""
        clock = asyncio.get_running_loop().time
        self._changed_at = clock()
        deadline = clock() + 24 * 3600
        while (rests_at := self._changed_at + SETTLE_SECONDS) > clock():
            self.raise_broken()
            assert clock() < deadline, "the cluster does not come to rest"
            await asyncio.sleep(rests_at - clock())

    def _note_change(self, _: object) -> None:
        self._changed_at = asyncio.get_running_loop().time()

    async def _follow_advice(self) -> bool:
        """Follow the advice in the messages of jobs; return whether there was any."""
        advised = [
            each["metadata"]["name"]
            for each in self.server.objects(PADDLE_JOBS, "default")
            if "suspend and resume the job" in (each.get("status") or {}).get("message", "")
        ]
        for suspended in (True, False) if advised else ():
            for name in advised:
                self._patch(name, {"suspend": suspended})
            await asyncio.sleep(60)
        return bool(advised)

    async def _operator(self, number: int) -> None:
        """Run an operator and restart it after each crash of the scenario and after each kill."""
        crashes = self._crashes if number == 0 else []
        while True:
            transport = self._transports[number] = self._transport(number)
            life = asyncio.create_task(self._one_life(number, transport))
            if number == 0:
                self._life = life
            is_last = not crashes
            if crashes:
                transport.crash_after(crashes.pop(0), life.cancel)
            try:
                await asyncio.wait({life})
            finally:
                transport.kill()
                life.cancel()
            if is_last and not life.cancelled():
                life.result()
            await asyncio.sleep(self.rng.uniform(0, 30))

    def kill_operator(self) -> None:
        """Kill the first operator; another one starts within half a minute."""
        if self._life is not None:
            self._life.cancel()

    def _transport(self, number: int) -> FaultyTransport:
        return self.faults.wrap(self.server.transport(f"operator-{number}", latency_seconds=(0.001, 0.05)))

    async def _one_life(self, number: int, transport: FaultyTransport) -> None:
        scheduling = Scheduling(self.scenario.gangs.scheduling)
        jobs = Settings(pods_have_ipv6=self.scenario.ip_family == "IPv6", scheduling=scheduling)
        settings = OperatorSettings(workers=WORKERS, history=HistorySettings(), jobs=jobs)
        client = Client(LimitedTransport(transport, limit=CONNECTIONS), rng=self.rng)
        operator = Operator(
            client,
            settings,
            rng=self.rng,
            now=_clock(self.scenario.operator_skew_seconds),
            reads_progress=self._has(SilentNodes),
            recorder=RECORDER if self._supervised else None,
        )
        if self.memory is not None:
            self.memory.watch(number, operator)
        if self.switchboard is None:
            await operator.run()
            return
        self.switchboard.connect(operator)
        try:
            await operator.run()
        finally:
            self.switchboard.disconnect(operator)

    async def _users(self) -> None:
        loop = asyncio.get_running_loop()
        for manifest in self.scenario.jobs:
            await asyncio.sleep(self.rng.uniform(0, 5))
            self.server.create(PADDLE_JOBS, manifest, identity="user")
            self.gangs.submit_group(manifest["metadata"]["name"])
        for deed in sorted(self.scenario.deeds, key=lambda one: one.at_seconds):
            await asyncio.sleep(max(0.0, deed.at_seconds - loop.time()))
            # The job or pod may be deleted already.
            with contextlib.suppress(ApiError):
                await self._do(deed)

    async def _mistake(self) -> None:
        mistake, loop = self.scenario.mistake, asyncio.get_running_loop()
        if mistake is None:
            return
        edits = [(mistake.at_seconds, mistake.wrong), (mistake.corrected_at_seconds, mistake.right)]
        for at, edit in edits:
            if at is not None:
                await asyncio.sleep(max(0.0, at - loop.time()))
                with contextlib.suppress(ApiError):
                    self._patch(mistake.job, edit)

    async def _upgrade(self) -> None:
        """Upgrade an old definition; until then operators write only records."""
        old = self.scenario.old_definition
        if old is None:
            return
        await asyncio.sleep(old.upgraded_at_seconds)
        writes = [
            each for each in self._operator_writes() if each.changed and each.resource != CONFIG_MAPS.plural
        ]
        assert not writes, f"beside a definition without {old.dropped}: {writes[:3]}"
        old.upgrade(self.server, DEFINITION)

    async def _do(self, deed: Deed) -> None:
        match deed.verb:
            case "scale":
                self._patch(deed.job, {"worker": {"replicas": deed.amount}})
            case "delete-pod":
                pods = [pod["metadata"]["name"] for pod in self.server.objects(PODS, "default")]
                if pods:
                    self.server.delete(PODS, "default", pods[deed.amount % len(pods)], identity="user")
            case "delete":
                self.server.delete(PADDLE_JOBS, "default", deed.job, identity="user")
            case "foreground":
                options = {"propagationPolicy": "Foreground"}
                self.server.delete(PADDLE_JOBS, "default", deed.job, options=options, identity="user")
            case "recreate":
                self.server.delete(PADDLE_JOBS, "default", deed.job, identity="user")
                manifest = next(one for one in self.scenario.jobs if one["metadata"]["name"] == deed.job)
                self.server.create(
                    PADDLE_JOBS, msgspec.json.decode(msgspec.json.encode(manifest)), identity="user"
                )
            case "suspend":
                self._patch(deed.job, {"suspend": True})
                if deed.amount > 1:
                    await asyncio.sleep(30)
                    self._patch(deed.job, {"suspend": False})

    def _patch(self, name: str, spec: dict[str, object]) -> None:
        self.server.patch(PADDLE_JOBS, "default", name, {"spec": spec}, identity="user")

    def _operator_writes(self) -> list[WriteRecord]:
        return [
            write
            for write in self.server.log.writes
            if write.identity.startswith("operator") and write.resource != "events"
        ]


def play(seed: int, **changes: object) -> Simulation:
    """Play the history of a seed, with changes to its scenario; raise if a rule is broken."""

    async def main() -> Simulation:
        simulation = Simulation(msgspec.structs.replace(draw(seed), **changes))
        await simulation.play()
        return simulation

    with silence():
        return virtual_loop.run(main(), seed=seed, max_steps=3_000_000)


def _clock(skew_seconds: float) -> Callable[[], datetime]:
    return lambda: virtual_loop.now() + timedelta(seconds=skew_seconds)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Silence the log of the operator: there are thousands of faults."""
    log = logging.getLogger("paddlejob")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
