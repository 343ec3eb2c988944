from __future__ import annotations

import asyncio

import pytest

from paddlejob.kube.transport.fair_limiter import FairLimiter


class Requests:
    """Requests that wait for a slot, and the order in which they get one."""

    def __init__(self, limit: int) -> None:
        self.limiter = FairLimiter(limit)
        self.served: list[str] = []

    async def send(self, group: str, name: str = "") -> asyncio.Task[None]:
        task = asyncio.create_task(self._wait(group, name or group))
        await asyncio.sleep(0)
        return task

    async def _wait(self, group: str, name: str) -> None:
        await self.limiter.enter(group)
        self.served.append(name)

    async def end_one(self, group: str) -> None:
        self.limiter.leave(group)
        await asyncio.sleep(0)


async def test_groups_take_turns_and_within_a_group_the_first_is_served_first():
    requests = Requests(1)
    for group, name in (("many", "1"), ("many", "2"), ("many", "3"), ("", "list"), ("few", "lease")):
        await requests.send(group, name)
    for group in ("many", "many", "", "few"):
        await requests.end_one(group)
    assert requests.served == ["1", "2", "list", "lease", "3"]


@pytest.mark.parametrize(
    ("limit", "waiting", "served"),
    [
        pytest.param(32, ["a"], {"a": 16}, id="a group alone gets half"),
        pytest.param(32, ["a", "b"], {"a": 16, "b": 8}, id="half of the rest is for the next"),
        pytest.param(32, ["a", "b", "c", "d"], {"a": 16, "b": 8, "c": 4, "d": 2}, id="four groups"),
        pytest.param(3, ["a", "b"], {"a": 2, "b": 1}, id="few slots"),
        pytest.param(1, ["a"], {"a": 1}, id="one slot"),
    ],
)
async def test_slow_requests_of_one_group_leave_slots_for_others(limit, waiting, served):
    requests = Requests(limit)
    tasks = [await requests.send(group) for group in waiting for _ in range(2 * limit)]
    assert {group: requests.served.count(group) for group in waiting} == served
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_busy_groups_converge_to_equal_shares():
    requests = Requests(32)
    groups = ["a", "b", "c"]
    tasks = [await requests.send(group) for group in groups for _ in range(200)]
    held = {group: requests.served.count(group) for group in groups}
    for turn in range(300):
        group = groups[turn % 3]
        if held[group]:
            before = len(requests.served)
            await requests.end_one(group)
            held[group] -= 1
            for each in requests.served[before:]:
                held[each] += 1
    assert set(held.values()) <= {7, 8, 9}
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_all_that_wait_are_served():
    requests = Requests(3)
    for _ in range(5):
        await requests.send("many")
    assert len(requests.served) == 2
    for _ in range(5):
        await requests.end_one("many")
    assert len(requests.served) == 5
    await requests.send("many")
    assert len(requests.served) == 6


@pytest.mark.parametrize("turn_has_come", [False, True])
async def test_a_cancelled_request_takes_no_slot(turn_has_come: bool):
    requests = Requests(1)
    await requests.send("many")
    given_up = await requests.send("many")
    await requests.send("few")
    if turn_has_come:
        requests.limiter.leave("many")
    given_up.cancel()
    await asyncio.wait([given_up])
    if not turn_has_come:
        requests.limiter.leave("many")
    await asyncio.sleep(0)
    assert requests.served == ["many", "few"]
