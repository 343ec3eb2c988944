"""Connections are lent in order, opened in moderation, and none is lost."""

from __future__ import annotations

import asyncio
import random

import pytest

from paddlejob.kube.errors import TransportError
from paddlejob.kube.http_pool import KEEP_ALIVE_SECONDS, Pool
from paddlejob.testing import virtual_loop


class FakeConnection:
    """A connection without a socket."""

    def __init__(self, on_lost):
        self.lost = False
        self.reusable = True
        self._on_lost = on_lost

    def close(self):
        if not self.lost:
            self.lost, self.reusable = True, False
            self._on_lost(self)


class Network:
    """Opens connections, each in some time, and knows all of them."""

    def __init__(self, seconds=0.01):
        self.seconds = seconds
        self.connections = []
        self.failure = None

    async def dial(self, on_lost):
        await asyncio.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        self.connections.append(FakeConnection(on_lost))
        return self.connections[-1]

    @property
    def open(self):
        return [connection for connection in self.connections if not connection.lost]


def on_a_network(act, *, limit=100, **options):
    async def main():
        network = Network(**options)
        pool = Pool(network.dial, limit=limit)
        try:
            await act(network, pool)
        finally:
            await pool.close()
        assert network.open == []

    virtual_loop.run(main())


async def exchange(pool, seconds=0.001):
    connection = await pool.borrow()
    try:
        await asyncio.sleep(seconds)
    finally:
        pool.give_back(connection)
    return connection


def test_a_connection_is_used_again_the_latest_first():
    async def act(network, pool):
        first = await pool.borrow()
        second = await pool.borrow()
        pool.give_back(first)
        pool.give_back(second)
        assert await pool.borrow() is second
        assert len(network.connections) == 2

    on_a_network(act)


def test_who_waits_takes_what_comes_first_a_new_connection_or_one_that_comes_free():
    async def act(network, pool):
        first = await pool.borrow()
        waiting = asyncio.create_task(pool.borrow())
        await asyncio.sleep(0.1)
        pool.give_back(first)
        assert await waiting is first
        # The other one is there when it is needed.
        await asyncio.sleep(2)
        assert await pool.borrow() is network.connections[1]

    on_a_network(act, seconds=1)


def test_there_are_never_more_than_the_limit():
    async def act(network, pool):
        lent = [await pool.borrow() for _ in range(3)]
        fourth = asyncio.create_task(pool.borrow())
        await asyncio.sleep(10)
        assert not fourth.done()
        assert len(network.open) == 3
        pool.give_back(lent[1])
        assert await fourth is lent[1]

    on_a_network(act, limit=3)


def test_whoever_comes_first_is_served_first():
    async def act(network, pool):
        connection, asked, served = await pool.borrow(), [], []

        async def wait(number):
            asked.append(number)
            borrowed = await pool.borrow()
            served.append(number)
            pool.give_back(borrowed)

        waiting = [asyncio.create_task(wait(number)) for number in range(5)]
        await asyncio.sleep(1)
        pool.give_back(connection)
        await asyncio.gather(*waiting)
        assert served == asked

    on_a_network(act, limit=1)


def test_what_cannot_be_used_again_is_closed_and_makes_room():
    async def act(network, pool):
        connection = await pool.borrow()
        waiting = asyncio.create_task(pool.borrow())
        await asyncio.sleep(1)
        connection.reusable = False
        pool.give_back(connection)
        assert connection.lost
        assert await waiting is not connection

    on_a_network(act, limit=1)


def test_a_connection_that_the_server_closed_is_not_lent():
    async def act(network, pool):
        connection = await exchange(pool)
        connection.close()
        assert await pool.borrow() is not connection

    on_a_network(act)


def test_an_old_connection_is_not_lent():
    async def act(network, pool):
        connection = await exchange(pool)
        await asyncio.sleep(KEEP_ALIVE_SECONDS + 1)
        assert await pool.borrow() is not connection
        assert connection.lost

    on_a_network(act)


def test_unused_connections_are_closed_while_others_are_used():
    async def act(network, pool):
        await asyncio.gather(*(exchange(pool, 1) for _ in range(20)))
        for _ in range(int(KEEP_ALIVE_SECONDS) + 2):
            await exchange(pool, 1)
        assert len(network.open) == 1

    on_a_network(act)


def test_a_failure_is_told_to_one_that_waits():
    async def act(network, pool):
        network.failure = TransportError("nobody there")
        results = await asyncio.gather(*(pool.borrow() for _ in range(20)), return_exceptions=True)
        assert results == [network.failure] * 20
        network.failure = None
        await exchange(pool)

    on_a_network(act)


def test_a_failure_that_nobody_foresaw_is_told_as_well():
    async def act(network, pool):
        network.failure = ValueError("a defect")
        with pytest.raises(ValueError, match="a defect"):
            await pool.borrow()

    on_a_network(act)


def test_who_gives_up_leaves_the_connection_to_the_next():
    async def act(network, pool):
        connection = await pool.borrow()
        first = asyncio.create_task(pool.borrow())
        second = asyncio.create_task(pool.borrow())
        await asyncio.sleep(1)
        pool.give_back(connection)
        # It has been given the connection and does not know it yet.
        first.cancel()
        assert await second is connection
        assert first.cancelled()

    on_a_network(act, limit=1)


def test_who_gave_up_before_is_passed_over():
    async def act(network, pool):
        connection = await pool.borrow()
        first = asyncio.create_task(pool.borrow())
        second = asyncio.create_task(pool.borrow())
        await asyncio.sleep(1)
        first.cancel()
        pool.give_back(connection)
        assert await second is connection

    on_a_network(act, limit=1)


def test_a_retired_pool_serves_who_waits_and_keeps_nothing():
    async def act(network, pool):
        idle, lent = await pool.borrow(), await pool.borrow()
        pool.give_back(idle)
        pool.retire()
        assert idle.lost
        waiting = asyncio.create_task(exchange(pool))
        await asyncio.sleep(1)
        assert (await waiting).lost
        pool.give_back(lent)
        assert lent.lost
        assert pool.is_empty

    on_a_network(act)


def test_closing_ends_waiting_and_dialling():
    async def act(network, pool):
        waiting = [asyncio.create_task(pool.borrow()) for _ in range(20)]
        await asyncio.sleep(0.001)
        await pool.close()
        for task in waiting:
            with pytest.raises(TransportError, match="closed"):
                await task

    on_a_network(act)


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_whatever_happens(seed):
    """Requests fail, are given up, or break their connection: everybody is served or told in the end."""
    rng = random.Random(seed)

    async def one(network, pool):
        connection = await pool.borrow()
        assert not connection.lost
        try:
            await asyncio.sleep(rng.random() / 50)
            if rng.random() < 0.2:
                connection.reusable = False
            if rng.random() < 0.1:
                connection.close()
        finally:
            pool.give_back(connection)

    async def act(network, pool):
        tasks = []
        for _ in range(200):
            network.failure = TransportError("away") if rng.random() < 0.1 else None
            tasks.append(asyncio.create_task(one(network, pool)))
            await asyncio.sleep(rng.random() / 200)
            if rng.random() < 0.2:
                rng.choice(tasks).cancel()
        network.failure = None
        await asyncio.wait(tasks, timeout=60)
        assert all(task.done() for task in tasks)
        assert all(task.cancelled() or isinstance(task.exception(), TransportError | None) for task in tasks)
        assert len(network.open) <= 4
        await asyncio.gather(*(exchange(pool) for _ in range(10)))

    on_a_network(act, limit=4)
