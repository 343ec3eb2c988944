from __future__ import annotations

import asyncio

import pytest

from paddlejob.plainjob.errors import PeerFailedError, SettingsError
from paddlejob.plainjob.rendezvous.address import reserve_loopback
from paddlejob.plainjob.rendezvous.barrier import (
    AllDone,
    Join,
    Left,
    ServerReady,
    StartServers,
    StartTrainers,
    TrainerDone,
)
from paddlejob.plainjob.rendezvous.coordinator import CoordinatorClient, CoordinatorServer, RejoinError


@pytest.fixture
def place():
    with reserve_loopback(3, 11000, 1) as found:
        yield found


@pytest.fixture
async def coordinator(place):
    announced = []
    server = CoordinatorServer(place.addresses, lambda: announced.append("all done"))
    server.announced = announced
    await server.open(place.addresses[0], place.port)
    yield server
    await server.close()


@pytest.fixture
async def join(place):
    joined = []

    async def call(trainer, addresses=None):
        message = Join(trainer, addresses or place.addresses)
        joined.append(
            await CoordinatorClient.join(place.addresses[0], place.port, message, timeout_seconds=30)
        )
        return joined[-1]

    yield call
    for client in joined:
        await client.close()


async def test_three_go_through_a_training_together(coordinator, join):
    clients = [await join(trainer) for trainer in range(3)]
    for said, announced in ((None, StartServers), (ServerReady(), StartTrainers), (TrainerDone(), AllDone)):
        for client in clients:
            if said is not None:
                client.send(said)
        await asyncio.gather(*(client.wait_for(announced) for client in clients))
    assert coordinator.announced == ["all done"]


async def test_a_failure_reaches_the_others_with_its_reason(coordinator, join):
    clients = [await join(trainer) for trainer in range(3)]
    await clients[0].wait_for(StartServers)
    await clients[2].wait_for(StartServers)
    clients[1].send(Left("exit code 3"))
    for other in (clients[0], clients[2]):
        with pytest.raises(PeerFailedError, match=r"trainer 1 \(127[.\d]+\.2\): exit code 3"):
            await other.wait_for(AllDone)


async def test_a_vanished_pod_is_noticed(coordinator, join):
    clients = [await join(trainer) for trainer in range(3)]
    await clients[0].wait_for(StartServers)
    await clients[2].close()
    with pytest.raises(PeerFailedError, match=r"trainer 2 .* its connection broke"):
        await clients[0].wait_for(AllDone)


async def test_a_lost_coordinator_is_noticed(place, join):
    coordinator = CoordinatorServer(place.addresses, lambda: None)
    await coordinator.open(place.addresses[0], place.port)
    clients = [await join(trainer) for trainer in range(3)]
    await clients[1].wait_for(StartServers)
    clients[0].send(Left("exit code 3"))
    await clients[0].close()
    await coordinator.close()
    with pytest.raises(PeerFailedError, match=r"trainer 0 .* exit code 3"):
        await clients[1].wait_for(StartTrainers)


async def test_another_addresses_is_refused(coordinator, join, place):
    client = await join(1, place.addresses[:2])
    with pytest.raises(RejoinError, match="a different list of pods"):
        await client.wait_for(StartServers)


STRANGERS = {
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "deeper than can be decoded": b'{"type":"join","deep":' + b"[" * 100_000 + b"\n",
    "a trainer of a larger job": b'{"type":"join","trainer":7,"addresses":["10.0.0.1"]}\n',
}


@pytest.mark.parametrize("line", STRANGERS.values(), ids=STRANGERS)
async def test_strangers_do_no_harm(coordinator, join, place, line):
    reader, writer = await asyncio.open_connection(place.addresses[0], place.port)
    writer.write(line)
    await reader.read()  # until it is hung up on
    writer.close()
    clients = [await join(trainer) for trainer in range(3)]
    await clients[2].wait_for(StartServers)


async def test_a_coordinator_that_is_not_reachable(place):
    with pytest.raises(RejoinError, match="trainer 0 is not reachable"):
        await CoordinatorClient.join(
            place.addresses[0], place.port, Join(0, place.addresses), timeout_seconds=0.01
        )


async def test_a_port_that_is_taken(coordinator, place):
    with pytest.raises(SettingsError, match=r"cannot listen on 127\."):
        await CoordinatorServer(place.addresses, lambda: None).open(place.addresses[0], place.port)
