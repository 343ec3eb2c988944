from __future__ import annotations

import asyncio

import pytest

from paddlejob.recipe.errors import PeerFailedError, SettingsError
from paddlejob.recipe.loopback import loopback_place
from paddlejob.recipe.rollcall import Done, Gone, Hello, Over, Serve, Serving, Train
from paddlejob.recipe.rollcall_net import HubServer, NotTogetherError, Session


@pytest.fixture
def place():
    with loopback_place(3, 11000, 1) as found:
        yield found


@pytest.fixture
async def hub(place):
    told = []
    server = HubServer(place.addresses, lambda: told.append("over"))
    server.told = told
    await server.open(place.addresses[0], place.port)
    yield server
    await server.close()


@pytest.fixture
async def join(place):
    joined = []

    async def call(member, roster=None):
        hello = Hello(member, roster or place.addresses)
        joined.append(await Session.join(place.addresses[0], place.port, hello, patience_seconds=30))
        return joined[-1]

    yield call
    for session in joined:
        await session.close()


async def test_three_go_through_a_training_together(hub, join):
    sessions = [await join(member) for member in range(3)]
    for said, announced in ((None, Serve), (Serving(), Train), (Done(), Over)):
        for session in sessions:
            if said is not None:
                session.say(said)
        await asyncio.gather(*(session.until(announced) for session in sessions))
    assert hub.told == ["over"]


async def test_a_failure_reaches_the_others_with_its_reason(hub, join):
    sessions = [await join(member) for member in range(3)]
    await sessions[0].until(Serve)
    await sessions[2].until(Serve)
    sessions[1].say(Gone("exit code 3"))
    for other in (sessions[0], sessions[2]):
        with pytest.raises(PeerFailedError, match=r"trainer 1 \(127[.\d]+\.2\): exit code 3"):
            await other.until(Over)


async def test_a_vanished_pod_is_noticed(hub, join):
    sessions = [await join(member) for member in range(3)]
    await sessions[0].until(Serve)
    await sessions[2].close()
    with pytest.raises(PeerFailedError, match=r"trainer 2 .* its connection broke"):
        await sessions[0].until(Over)


async def test_a_vanished_hub_is_noticed(place, join):
    hub = HubServer(place.addresses, lambda: None)
    await hub.open(place.addresses[0], place.port)
    sessions = [await join(member) for member in range(3)]
    await sessions[1].until(Serve)
    sessions[0].say(Gone("exit code 3"))
    await sessions[0].close()
    await hub.close()
    with pytest.raises(PeerFailedError, match=r"trainer 0 .* exit code 3"):
        await sessions[1].until(Train)


async def test_another_roster_is_refused(hub, join, place):
    session = await join(1, place.addresses[:2])
    with pytest.raises(NotTogetherError, match="another list of pods"):
        await session.until(Serve)


STRANGERS = {
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "deeper than can be decoded": b'{"say":"hello","deep":' + b"[" * 100_000 + b"\n",
    "a member of a larger job": b'{"say":"hello","member":7,"roster":["10.0.0.1"]}\n',
}


@pytest.mark.parametrize("line", STRANGERS.values(), ids=STRANGERS)
async def test_strangers_do_no_harm(hub, join, place, line):
    reader, writer = await asyncio.open_connection(place.addresses[0], place.port)
    writer.write(line)
    await reader.read()  # until it is hung up on
    writer.close()
    sessions = [await join(member) for member in range(3)]
    await sessions[2].until(Serve)


async def test_a_hub_that_does_not_answer(place):
    with pytest.raises(NotTogetherError, match="trainer 0 does not answer"):
        await Session.join(place.addresses[0], place.port, Hello(0, place.addresses), patience_seconds=0.01)


async def test_a_port_that_is_taken(hub, place):
    with pytest.raises(SettingsError, match=r"cannot listen at 127\."):
        await HubServer(place.addresses, lambda: None).open(place.addresses[0], place.port)
