"""Two and three candidates on a bad network, with skewed clocks and processes that are stopped and go on."""

from __future__ import annotations

import asyncio
import contextvars
import random
import types
from datetime import timedelta

import pytest

from paddlejob.kube.client import Client
from paddlejob.kube.errors import KubeError, TransportError
from paddlejob.kube.lease import LeaderElector, LeaseLostError
from paddlejob.kube.resource import LEASES
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer, SimulatedTransport

pytestmark = pytest.mark.slow

PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("PROCESS", default=None)


async def pausable(coroutine, process: Process):
    """Run a coroutine, but nothing of it while its process is stopped; it hears later what happened then."""
    return await steps(coroutine, process)


@types.coroutine
def steps(coroutine, process: Process):
    error: BaseException | None = None
    while True:
        try:
            awaited = coroutine.send(None) if error is None else coroutine.throw(error)
        except StopIteration as finished:
            return finished.value
        error = None
        try:
            yield awaited
        except BaseException as thrown:
            error = thrown
        while process.is_stopped:
            try:
                yield from process.goes_on.wait().__await__()
            except BaseException as thrown:
                error = thrown


def stop_tasks_with_their_process() -> None:
    """From here on every task that a process makes can be stopped with it."""
    loop = asyncio.get_running_loop()
    create_task = loop.create_task

    def create_pausable(coroutine, *, context=None, **options):
        process = PROCESS.get() if context is None else context.get(PROCESS)
        wrapped = coroutine if process is None else pausable(coroutine, process)
        return create_task(wrapped, context=context, **options)

    loop.create_task = create_pausable


class BadNetwork(SimulatedTransport):
    """Loses requests and answers, delays them by up to half a minute, and lets some take effect after all."""

    def __init__(self, server: ApiServer, identity: str, rng: random.Random) -> None:
        super().__init__(server, identity, None)
        self.rng = rng
        self.loss_rate = 0.0
        self.is_slow = False

    async def request(self, method, path, **options):
        on_its_way = asyncio.get_running_loop().create_task(
            self.deliver(method, path, options), context=contextvars.Context()
        )
        answer = await asyncio.shield(on_its_way)
        if isinstance(answer, KubeError):
            raise answer
        return answer

    async def deliver(self, method, path, options):
        """Carry a request to the server, whether its sender still waits or not."""
        await asyncio.sleep(self.delay())
        if self.rng.random() < self.loss_rate:
            return TransportError("lost on the way")
        answer = await super().request(method, path, **options)
        await asyncio.sleep(self.delay())
        return TransportError("answer lost") if self.rng.random() < self.loss_rate else answer

    def delay(self) -> float:
        return self.rng.choice([0.01, 0.1, 1, 4, 30]) if self.is_slow else self.rng.uniform(0, 0.01)


class Process:
    """A candidate whose work acts again and again, and writes down under which term of office."""

    def __init__(self, election: Election, identity: str) -> None:
        self.election, self.identity = election, identity
        self.rng = random.Random(f"{election.seed}/{identity}")
        self.network = BadNetwork(election.server, identity, self.rng)
        skew = timedelta(seconds=self.rng.uniform(-86400, 86400))
        self.elector = LeaderElector(
            Client(self.network, rng=self.rng),
            namespace="system",
            name="paddlejob",
            identity=identity,
            rng=self.rng,
            now=lambda: virtual_loop.now() + skew,
            on_stuck=self.complain,
        )
        self.is_stopped = False
        self.has_been_stopped = False
        self.goes_on = asyncio.Event()
        self.is_working = False

    def complain(self) -> None:
        assert self.has_been_stopped, "the work did not stop in time"

    def start(self) -> asyncio.Task[None]:
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        return asyncio.get_running_loop().create_task(self.live(), context=context)

    async def live(self) -> None:
        while True:
            try:
                await self.elector.run(self.work)
            except LeaseLostError:
                await asyncio.sleep(self.rng.uniform(0, 5))

    async def work(self) -> None:
        self.election.starts(self)
        try:
            while True:
                if self.elector.is_leader:
                    self.election.acts(self)
                await asyncio.sleep(self.rng.uniform(0.1, 2))
        finally:
            await asyncio.sleep(self.rng.uniform(0, 4))
            self.is_working = False

    def stop(self) -> None:
        self.is_stopped = self.has_been_stopped = True
        self.goes_on.clear()

    def go_on(self) -> None:
        self.is_stopped = False
        self.goes_on.set()


class Election:
    """Candidates for one lease, what disturbs them, and what must hold whenever one of them works."""

    def __init__(self, seed: int, candidates: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.server = ApiServer(rng=self.rng)
        self.processes = [Process(self, f"candidate-{number}") for number in range(candidates)]
        self.terms: list[tuple[int, str]] = []
        self.actions = 0

    def starts(self, process: Process) -> None:
        others = [other for other in self.processes if other is not process and other.is_working]
        # A process that was stopped cannot stop its work in time; that it does not act is what counts then.
        assert all(other.has_been_stopped for other in others), "two at work at once"
        process.is_working, process.has_been_stopped = True, process.is_stopped

    def acts(self, process: Process) -> None:
        self.actions += 1
        leaders = [each.identity for each in self.processes if each.elector.is_leader]
        assert leaders == [process.identity]
        term = (self.term_of(process), process.identity)
        if not self.terms or self.terms[-1] != term:
            assert not self.terms or self.terms[-1][0] < term[0], "an earlier leader acts after a later one"
            self.terms.append(term)

    @staticmethod
    def term_of(process: Process) -> int:
        lease = process.elector._lease
        assert lease is not None
        return lease["spec"]["leaseTransitions"]

    def disturb(self) -> None:
        process = self.rng.choice(self.processes)
        match self.rng.randrange(8):
            case 0:
                process.network.loss_rate = self.rng.choice([0.1, 0.5, 1.0])
            case 1:
                process.network.is_slow = True
            case 2:
                process.stop()
            case 3 if self.server.get(LEASES, "system", "paddlejob"):
                # Somebody labels the lease: the next renewal runs into a conflict.
                labels = {"metadata": {"labels": {"touched": str(self.rng.random())}}}
                self.server.patch(LEASES, "system", "paddlejob", labels)
            case _:
                self.heal(process)

    def heal(self, process: Process) -> None:
        process.network.loss_rate, process.network.is_slow = 0.0, False
        process.go_on()


async def simulate(seed: int, candidates: int) -> Election:
    stop_tasks_with_their_process()
    election = Election(seed, candidates)
    lives = [process.start() for process in election.processes]
    for _ in range(200):
        election.disturb()
        await asyncio.sleep(election.rng.expovariate(0.2))
    for process in election.processes:
        election.heal(process)
    await asyncio.sleep(120)
    actions = election.actions
    await asyncio.sleep(60)
    assert election.actions > actions + 15, "nobody works although all is well"
    assert not any(life.done() for life in lives)
    return election


@pytest.mark.parametrize("candidates", [2, 3], ids=["two-candidates", "three-candidates"])
@pytest.mark.parametrize("seed", range(15))
def test_never_two_leaders_and_always_one_again(seed: int, candidates: int):
    virtual_loop.run(simulate(seed, candidates), seed=seed)


def test_the_simulation_sees_many_changes_of_leader():
    changes = sum(len(virtual_loop.run(simulate(seed, 3), seed=seed).terms) for seed in range(3))
    assert changes > 12
