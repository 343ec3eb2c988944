from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from paddlejob.kube.backoff import RetryPolicy
from paddlejob.kube.client import Client
from paddlejob.kube.decoding import split_lines
from paddlejob.kube.errors import (
    ApiError,
    ConflictError,
    GoneError,
    KubeError,
    ServerError,
    TooManyRequestsError,
    TransportError,
    TransportTimeoutError,
)
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from simkube.faults.transport import FaultRates, Faults, FaultyTransport
from tests.simulator.behaviour import config_map
from tests.support.simulated import simulated


class World:
    """A server and a client with faults between them."""

    def __init__(self, seed: int = 1, **rates: float) -> None:
        self.server = ApiServer(rng=random.Random(seed))
        self.faults = Faults(random.Random(seed), FaultRates(**rates))
        self.transport: FaultyTransport = self.faults.wrap(self.server.transport("me"))
        self.client = Client(self.transport, retry_policy=RetryPolicy(max_tries=1))

    async def create(self, name: str = "a") -> None:
        await self.client.create(CONFIG_MAPS, "default", config_map(name))

    @property
    def names(self) -> list[str]:
        return [body["metadata"]["name"] for body in self.server.objects(CONFIG_MAPS)]

    def watch(self, **query: str) -> Any:
        options = {"resourceVersion": str(self.server.version), "allowWatchBookmarks": "true", **query}
        return self.client.watch_stream(CONFIG_MAPS, "default", options, idle_timeout_seconds=70)

    async def change_every_second(self, seconds: int = 300) -> None:
        if not self.names:
            self.server.create(CONFIG_MAPS, config_map("a"))
        for number in range(seconds):
            self.server.patch(CONFIG_MAPS, "default", "a", {"data": {"key": f"{number}"}})
            await asyncio.sleep(1)


@simulated
async def test_without_rates_nothing_goes_wrong() -> None:
    world = World()
    for number in range(100):
        await world.create(f"c{number}")
    assert world.faults.counts == Counter()
    assert world.transport.writes == 100


@simulated
async def test_a_refused_connection_changes_nothing() -> None:
    world = World(connect_error=1.0)
    with pytest.raises(TransportError):
        await world.create()
    assert world.names == []


@simulated
async def test_a_lost_reply_is_of_a_write_that_took_effect() -> None:
    world = World(lost_reply=1.0)
    with pytest.raises(TransportError):
        await world.create()
    assert world.names == ["a"]


@simulated
async def test_a_duplicated_create_answers_that_it_exists() -> None:
    world = World(duplicated=1.0)
    with pytest.raises(ConflictError):
        await world.create()
    assert world.names == ["a"]


@pytest.mark.parametrize(
    ("rate", "error"),
    [("too_many_requests", TooManyRequestsError), ("unavailable", ServerError)],
    ids=["429", "503"],
)
@simulated
async def test_a_server_that_asks_to_wait_has_not_begun(rate: str, error: type[ApiError]) -> None:
    world = World(**{rate: 1.0})
    with pytest.raises(error) as caught:
        await world.create()
    assert caught.value.retry_after_seconds
    assert world.names == []


@simulated
async def test_after_a_server_error_a_write_may_have_taken_effect_or_not() -> None:
    world = World(server_error=1.0)
    for number in range(20):
        with pytest.raises(ServerError):
            await world.create(f"c{number}")
    assert 0 < len(world.names) < 20


@simulated
async def test_a_conflict_is_for_changes_not_for_creations() -> None:
    world = World(conflict=1.0)
    await world.create()
    with pytest.raises(ConflictError):
        await world.client.patch(CONFIG_MAPS, "default", "a", {"data": {"key": "other"}})
    await world.client.delete(CONFIG_MAPS, "default", "a")


@simulated
async def test_a_slow_request_takes_time_or_times_out() -> None:
    world, loop = World(slow=1.0, slow_seconds=60.0), asyncio.get_running_loop()
    outcomes: Counter[str] = Counter()
    for number in range(40):
        began = loop.time()
        try:
            await world.create(f"c{number}")
            outcomes["answered"] += 1
        except TransportTimeoutError:
            outcomes["in time" if f"c{number}" in world.names else "too late"] += 1
        assert loop.time() - began <= 30
    assert set(outcomes) == {"answered", "in time", "too late"}


@simulated
async def test_a_later_page_can_be_gone() -> None:
    world = World(page_gone=1.0)
    for name in "ab":
        world.server.create(CONFIG_MAPS, config_map(name))
    page = await world.client.list(CONFIG_MAPS, limit=1)
    with pytest.raises(GoneError):
        await world.client.list(CONFIG_MAPS, limit=1, continue_token=page.metadata.continue_token)


@simulated
async def test_a_refused_watch_is_refused_in_every_way() -> None:
    world = World(watch_refused=1.0)
    seen: set[int] = set()
    for _ in range(30):
        try:
            async with world.watch() as stream:
                seen.add(stream.status)
        except TransportError:
            seen.add(0)
    assert seen == {0, 429, 500}


@simulated
async def test_an_expired_watch_says_so_as_a_status_or_as_an_event() -> None:
    world, seen = World(watch_gone=1.0), set()
    for _ in range(20):
        async with world.watch() as stream:
            lines = [line async for line in split_lines(stream.chunks())]
            last = msgspec.json.decode(lines[-1])
            seen.add((stream.status, last.get("type"), last.get("object", last)["code"]))
    assert seen == {(410, None, 410), (200, "ERROR", 410)}


@simulated
async def test_a_closed_watch_ends_after_a_whole_event() -> None:
    world = World(watch_closed=1.0)
    changing = asyncio.create_task(world.change_every_second())
    async with world.watch() as stream:
        lines = [msgspec.json.decode(line) async for line in split_lines(stream.chunks())]
    assert {line["type"] for line in lines} <= {"ADDED", "MODIFIED", "BOOKMARK"}
    assert not changing.done()


@simulated
async def test_a_cut_watch_breaks_in_the_middle_of_an_event() -> None:
    world, received = World(watch_cut=1.0), []
    changing = asyncio.create_task(world.change_every_second(3000))
    for _ in range(10):
        async with world.watch() as stream:
            with pytest.raises(TransportError):
                await _read_until_error(stream, received)
        assert not received[-1].endswith(b"\n")
    assert not changing.done()


async def _read_until_error(stream: Any, received: list[bytes]) -> None:
    async for chunk in stream.chunks():
        received.append(chunk)  # noqa: PERF401  (chunks before an error are kept)


@simulated
async def test_a_silent_watch_is_found_out_by_its_idle_time() -> None:
    world, loop = World(watch_silent=1.0, watch_life_seconds=10.0), asyncio.get_running_loop()
    changing = asyncio.create_task(world.change_every_second())
    async with world.watch() as stream:
        with pytest.raises(TransportTimeoutError):
            await _read_until_error(stream, [])
    assert 70 <= loop.time() <= 81
    assert not changing.done()


@simulated
async def test_a_silent_watch_stays_silent_when_the_network_heals() -> None:
    world = World(watch_silent=1.0, watch_life_seconds=10.0)
    changing = asyncio.create_task(world.change_every_second())
    received: list[bytes] = []
    async with world.watch() as stream:
        reading = asyncio.create_task(_read_until_error(stream, received))
        await asyncio.sleep(15)
        before = len(received)
        world.faults.heal()
        await asyncio.sleep(20)
        assert len(received) == before
        with pytest.raises(TransportTimeoutError):
            await reading
    assert not changing.done()


@simulated
async def test_delayed_kinds_arrive_in_another_order() -> None:
    orders = set()
    for seed in range(10):
        world = World(seed, watch_delayed=1.0)
        arrived: list[str] = []

        async def follow(resource: Any, world: World = world, arrived: list[str] = arrived) -> None:
            query = {"resourceVersion": str(world.server.version)}
            async with world.client.watch_stream(resource, "default", query) as stream:
                await anext(stream.chunks())
                arrived.append(resource.plural)

        async with asyncio.TaskGroup() as group:
            group.create_task(follow(CONFIG_MAPS))
            group.create_task(follow(PODS))
            await asyncio.sleep(1)
            world.server.create(CONFIG_MAPS, config_map("a"))
            world.server.create(
                PODS, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
            )
        orders.add(tuple(arrived))
    assert orders == {("configmaps", "pods"), ("pods", "configmaps")}


@pytest.mark.parametrize("seed", range(10))
def test_what_a_delayed_watch_delivers_is_in_order_and_complete(seed: int) -> None:
    @simulated
    async def check() -> None:
        world, versions = World(seed, watch_delayed=1.0), []
        changing = asyncio.create_task(world.change_every_second(60))
        start = world.server.version
        async with world.watch(resourceVersion=str(start), timeoutSeconds="600") as stream:
            async for line in split_lines(stream.chunks()):
                event = msgspec.json.decode(line)
                if event["type"] != "BOOKMARK":
                    versions.append(int(event["object"]["metadata"]["resourceVersion"]))
        assert versions == list(range(start + 1, world.server.version + 1))
        assert changing.done()

    check()


@simulated
async def test_healed_means_healed() -> None:
    rates = {name: 1.0 for name in FaultRates.__struct_fields__ if not name.endswith("seconds")}
    world = World(**rates)
    world.faults.heal()
    for number in range(50):
        await world.create(f"c{number}")
    async with world.watch(timeoutSeconds="60") as stream:
        assert stream.status == 200
        world.server.create(CONFIG_MAPS, config_map("last"))
        assert b"last" in await anext(stream.chunks())
    assert world.faults.counts == Counter()


@pytest.mark.parametrize("fate", ["watch_closed", "watch_cut", "watch_silent"])
@simulated
async def test_a_watch_that_was_to_end_badly_does_not_when_all_has_healed_before(fate: str) -> None:
    world, received = World(**{fate: 1.0, "watch_life_seconds": 100.0}), []
    async with world.watch(timeoutSeconds="400") as stream:
        world.faults.heal()
        changing = asyncio.create_task(world.change_every_second(300))
        await _read_until_error(stream, received)
    assert asyncio.get_running_loop().time() == 400
    assert b"".join(received).count(b'"MODIFIED"') == 300
    assert changing.done()


@simulated
async def test_healed_faults_can_come_back() -> None:
    world = World(connect_error=1.0)
    world.faults.heal()
    await world.create()
    world.faults.relapse()
    with pytest.raises(TransportError):
        await world.create("b")


@simulated
async def test_a_crash_comes_right_after_the_nth_write_and_the_writer_never_knows() -> None:
    world, answered = World(), []

    async def operator() -> None:
        for number in range(10):
            await world.create(f"c{number}")
            answered.append(number)

    task = asyncio.create_task(operator())
    world.transport.crash_after(3, task.cancel)
    with pytest.raises((asyncio.CancelledError, TransportError)):
        await task
    assert (answered, world.names) == ([0, 1], ["c0", "c1", "c2"])


@simulated
async def test_after_a_crash_the_dying_process_reaches_nobody() -> None:
    world = World()

    async def operator() -> None:
        try:
            await world.create("first")
        finally:
            await world.create("cleanup")

    task = asyncio.create_task(operator())
    world.transport.crash_after(1, task.cancel)
    with pytest.raises((asyncio.CancelledError, TransportError)):
        await task
    assert world.names == ["first"]
    with pytest.raises(TransportError):
        async with world.watch():
            pytest.fail("a dead process has no watches")


@simulated
async def test_a_killed_transport_sends_nothing_and_another_goes_on() -> None:
    world = World()
    world.transport.kill()
    with pytest.raises(TransportError):
        await world.create()
    await Client(world.faults.wrap(world.server.transport("next"))).create(
        CONFIG_MAPS, "default", config_map("b")
    )
    assert world.names == ["b"]


def test_one_seed_is_one_run_of_faults() -> None:
    async def attempt(seed: int) -> tuple[list[Any], Counter[str]]:
        world = World(seed)
        world.faults.rates = FaultRates.everything(0.2)
        for number in range(60):
            try:
                await world.create(f"c{number}")
            except KubeError:
                continue
        return [
            (write.at_seconds, write.name, write.code) for write in world.server.log.writes
        ], world.faults.counts

    assert virtual_loop.run(attempt(1), seed=1) == virtual_loop.run(attempt(1), seed=1)
    assert virtual_loop.run(attempt(1), seed=1) != virtual_loop.run(attempt(2), seed=1)
