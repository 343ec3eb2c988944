from __future__ import annotations

import asyncio

import pytest

from paddlejob.kube.transport.turns import Turns

MANY, FEW = "/api/v1/namespaces/many/pods", "/apis/coordination.k8s.io/v1/namespaces/few/leases/operator"


class Requests:
    """Requests that wait for a turn, and the order in which they get it."""

    def __init__(self, limit: int) -> None:
        self.turns = Turns(limit)
        self.served: list[str] = []

    async def send(self, path: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._wait(path))
        await asyncio.sleep(0)
        return task

    async def _wait(self, path: str) -> None:
        await self.turns.enter(path)
        self.served.append(path)

    async def end_one(self) -> None:
        self.turns.leave()
        await asyncio.sleep(0)


async def test_namespaces_take_turns_and_in_a_namespace_the_first_goes_first():
    requests = Requests(1)
    for path in (MANY, MANY + "/1", MANY + "/2", "/readyz", FEW):
        await requests.send(path)
    for _ in range(4):
        await requests.end_one()
    assert requests.served == [MANY, MANY + "/1", "/readyz", FEW, MANY + "/2"]


async def test_no_more_than_the_limit_go_at_the_same_time():
    requests = Requests(3)
    for _ in range(5):
        await requests.send(MANY)
    assert len(requests.served) == 3
    for _ in range(5):
        await requests.end_one()
    assert len(requests.served) == 5
    for _ in range(5):
        await requests.send(FEW)
    assert len(requests.served) == 8


@pytest.mark.parametrize("turn_has_come", [False, True])
async def test_who_is_cancelled_takes_no_turn(turn_has_come: bool):
    requests = Requests(1)
    await requests.send(MANY)
    given_up = await requests.send(MANY)
    await requests.send(FEW)
    if turn_has_come:
        requests.turns.leave()
    given_up.cancel()
    await asyncio.wait([given_up])
    if not turn_has_come:
        requests.turns.leave()
    await asyncio.sleep(0)
    assert requests.served == [MANY, FEW]
