from __future__ import annotations

import asyncio

import pytest

from paddlejob.plainjob.errors import PeersMissingError, SettingsError
from paddlejob.plainjob.rendezvous.address import reserve_loopback
from paddlejob.plainjob.rendezvous.peers import Finished, JobShape, PodIdentity
from paddlejob.plainjob.rendezvous.pod_lister import ListingError
from paddlejob.plainjob.rendezvous.rendezvous import Rendezvous, Timing
from paddlejob.plainjob.settings import JobSettings
from plainjob.pods import pod

TIMING = Timing(deadline_seconds=30, poll_seconds=0.01)
HASTY = Timing(deadline_seconds=1, poll_seconds=0.01)


class World:
    """A list of pods that changes, and answers that fail."""

    def __init__(self, place):
        self.place = place
        self.pods = [pod(f"p{index}", address) for index, address in enumerate(place.addresses)]
        self.failures = 0
        self.shape = JobShape(3, 3)
        self.said = []

    async def list_pods(self, namestiming, label_selector):
        assert (namestiming, label_selector) == ("default", "job-name=job")
        return self._answer(list(self.pods))

    async def job_shape(self, namestiming, name):
        return self._answer(self.shape)

    def _answer(self, value):
        if self.failures:
            self.failures -= 1
            raise ListingError("connection refused")
        return value

    def rendezvous(self, index, timing=TIMING):
        settings = JobSettings(job_name="job", job_path="/", train_config_dir="c", port=self.place.port)
        return Rendezvous(self, settings, PodIdentity(f"p{index}"), timing, self.said.append)


@pytest.fixture
def world():
    with reserve_loopback(4, 13000, 5) as place:
        found = World(place)
        found.pods = found.pods[:3]
        yield found


async def join(world, index, timing=TIMING):
    async with world.rendezvous(index, timing).join(lambda _peers: None) as joined:
        return joined if isinstance(joined, Finished) else (joined[0].me, joined[0].addresses)


async def test_all_come_together_with_one_peers(world):
    joined = await asyncio.gather(*(join(world, index) for index in range(3)))
    assert joined == [(index, world.place.addresses[:3]) for index in range(3)]


async def test_failing_answers_are_asked_again(world):
    world.failures = 5
    await asyncio.gather(*(join(world, index) for index in range(3)))
    assert "retrying: connection refused" in world.said


async def test_a_late_pod_is_waited_for_and_named(world):
    late = world.pods.pop()
    tasks = [asyncio.create_task(join(world, index)) for index in range(3)]
    while "2 of 3 pods are running; missing: 1 pod not created yet" not in world.said:
        await asyncio.sleep(0)
    world.pods.append(late)
    assert [me for me, _ in await asyncio.gather(*tasks)] == [0, 1, 2]


async def test_what_has_not_changed_is_said_once(world):
    world.pods.pop()
    with pytest.raises(PeersMissingError):
        await join(world, 0, HASTY)
    assert world.said == ["2 of 3 pods are running; missing: 1 pod not created yet"]


async def test_a_pod_replaced_before_all_had_come_is_no_obstacle(world):
    """The third pod dies before it joins; its successor has another address."""
    tasks = [asyncio.create_task(join(world, index)) for index in range(2)]
    while not any("waiting for them to join" in line for line in world.said):
        await asyncio.sleep(0)
    world.pods[2] = pod("p2", world.place.addresses[3])
    tasks.append(asyncio.create_task(join(world, 2)))
    lists = {addresses for _, addresses in await asyncio.gather(*tasks)}
    assert lists == {(*world.place.addresses[:2], world.place.addresses[3])}


@pytest.mark.parametrize(
    ("arrange", "message"),
    [
        pytest.param(
            lambda world: world.pods.pop(), "missing: 1 pod not created yet", id="a pod that never came"
        ),
        pytest.param(lambda world: None, "not joined yet: 127.", id="a pod that runs and never answers"),
        pytest.param(
            lambda world: setattr(world, "failures", 10**9), "connection refused", id="no api server"
        ),
    ],
)
async def test_the_deadline_names_who_is_missing(world, arrange, message):
    arrange(world)
    with pytest.raises(
        PeersMissingError, match=f"timed out after 1 seconds waiting for the other pods: .*{message}"
    ):
        await join(world, 0, HASTY)


async def test_a_finished_sibling_ends_the_wait(world):
    world.pods[2] = pod("p2", "10.0.0.3", "Succeeded")
    assert await join(world, 0) == Finished("p2", "job-1")


async def test_what_cannot_become_better_is_not_waited_for(world):
    world.pods[2] = pod("p2", world.place.addresses[0])
    with pytest.raises(SettingsError, match="hostNetwork"):
        await join(world, 0)
