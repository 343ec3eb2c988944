from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import pytest

from paddlejob.kube.backoff import Backoff
from paddlejob.kube.workqueue import Priority, WorkQueue
from simkube import virtual_loop

LOOPS = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(lambda: pytest.importorskip("uvloop").new_event_loop(), id="uvloop"),
]


def in_virtual_time(scenario: Callable[[WorkQueue[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(WorkQueue(rng=random.Random(0)))

    virtual_loop.run(main())


@pytest.fixture
async def queue() -> WorkQueue[str]:
    return WorkQueue(rng=random.Random(0))


async def take_all(queue: WorkQueue[str]) -> list[str]:
    """Take and finish all keys that are ready."""
    taken = []
    while queue.depth:
        key = await queue.get()
        assert key is not None
        queue.done(key)
        taken.append(key)
    return taken


async def test_keys_are_served_in_the_order_they_were_added(queue: WorkQueue[str]):
    for key in "cab":
        queue.add(key)
    assert await take_all(queue) == ["c", "a", "b"]


async def test_groups_take_turns_whoever_adds_more():
    queue: WorkQueue[str] = WorkQueue(rng=random.Random(0), group_of=lambda key: key[0])
    for key in ("a1", "a2", "a3", "a4", "b1", "c1", "c2"):
        queue.add(key)
    queue.add("a4", priority=Priority.REQUEST)
    assert queue.depth == 7
    assert await take_all(queue) == ["a4", "a1", "b1", "c1", "a2", "c2", "a3"]
    assert queue.depth == 0


async def test_a_returning_group_waits_for_one_key_of_each_other_group():
    queue: WorkQueue[str] = WorkQueue(rng=random.Random(0), group_of=lambda key: key[0])
    for number in range(100):
        queue.add(f"a{number}")
    for number in range(5):
        queue.add(f"b{number}")
        assert [(await queue.get() or "")[0] for _ in range(2)] == ["a", "b"]


def started(queue: WorkQueue[str], workers: int) -> tuple[list[str], list[asyncio.Task[None]]]:
    """Start workers that keep the keys they get; return these keys."""
    keys: list[str] = []

    async def work() -> None:
        if (key := await queue.get()) is not None:
            keys.append(key)

    return keys, [asyncio.create_task(work()) for _ in range(workers)]


async def test_a_group_of_slow_keys_leaves_workers_for_other_groups():
    queue: WorkQueue[str] = WorkQueue(rng=random.Random(0), group_of=lambda key: key[0], workers=8)
    for number in range(20):
        queue.add(f"a{number}")
    keys, _ = started(queue, 8)
    await asyncio.sleep(0)
    assert keys == ["a0", "a1", "a2", "a3"]
    for number in range(20):
        queue.add(f"b{number}", priority=Priority.RESYNC)
    await asyncio.sleep(0)
    assert keys[4:] == ["b0", "b1"]
    queue.close()


async def test_a_worker_without_a_key_takes_the_one_that_a_group_may_have_now():
    queue: WorkQueue[str] = WorkQueue(rng=random.Random(0), group_of=lambda key: key[0], workers=2)
    for key in ("a1", "a2"):
        queue.add(key)
    keys, (_, idle) = started(queue, 2)
    await asyncio.sleep(0)
    assert keys == ["a1"]
    queue.done("a1")
    await idle
    assert keys == ["a1", "a2"]


async def test_a_key_that_waits_is_there_once(queue: WorkQueue[str]):
    for key in "aabab":
        queue.add(key)
    assert queue.depth == 2
    assert await take_all(queue) == ["a", "b"]


async def test_a_key_added_while_running_gets_exactly_one_more_pass(queue: WorkQueue[str]):
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert queue.depth == 0
    queue.done("a")
    assert await take_all(queue) == ["a"]


async def test_a_finished_key_that_was_not_added_again_is_gone(queue: WorkQueue[str]):
    queue.add("a")
    assert await take_all(queue) == ["a"]
    assert (queue.depth, queue.running, queue.delayed) == (0, 0, 0)


async def test_done_without_get_is_a_programming_error(queue: WorkQueue[str]):
    with pytest.raises(KeyError):
        queue.done("a")


async def test_get_waits_for_a_key(queue: WorkQueue[str]):
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not getting.done()
    queue.add("a")
    assert await getting == "a"


async def test_a_cancelled_get_loses_no_key(queue: WorkQueue[str]):
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    getting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getting
    assert await queue.get() == "a"


@pytest.mark.parametrize("steps", [0, 1], ids=["at the same moment", "before"])
async def test_a_key_goes_to_a_worker_that_still_waits(queue: WorkQueue[str], steps: int):
    leaving, staying = (asyncio.create_task(queue.get()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    for _ in range(steps):
        await asyncio.sleep(0)
    queue.add("a")
    assert await staying == "a"


async def test_many_workers_never_share_a_key(queue: WorkQueue[str]):
    getters = [asyncio.create_task(queue.get()) for _ in range(5)]
    await asyncio.sleep(0)
    for key in "abcde":
        queue.add(key)
    assert sorted(await asyncio.gather(*getters)) == list("abcde")


async def test_a_change_goes_before_the_start_up_list_and_that_before_a_resync(queue: WorkQueue[str]):
    queue.add("resync", priority=Priority.RESYNC)
    queue.add("startup", priority=Priority.STARTUP)
    queue.add("change")
    assert await take_all(queue) == ["change", "startup", "resync"]


async def test_the_higher_of_two_priorities_wins(queue: WorkQueue[str]):
    queue.add("a", priority=Priority.RESYNC)
    queue.add("b", priority=Priority.STARTUP)
    queue.add("a", priority=Priority.CHANGE)
    queue.add("a", priority=Priority.RESYNC)
    assert await take_all(queue) == ["a", "b"]


async def test_a_key_keeps_the_priority_it_was_given_while_running(queue: WorkQueue[str]):
    queue.add("a")
    await queue.get()
    queue.add("b", priority=Priority.STARTUP)
    queue.add("a", priority=Priority.RESYNC)
    queue.add("a", priority=Priority.CHANGE)
    queue.done("a")
    assert await take_all(queue) == ["a", "b"]


async def test_a_stream_of_changes_starves_no_key(queue: WorkQueue[str]):
    queue.add("patient", priority=Priority.RESYNC)
    taken = []
    for number in range(10):
        queue.add(f"change-{number}")
        key = await queue.get()
        assert key is not None
        taken.append(key)
    assert "patient" in taken


def test_a_delayed_key_is_served_at_its_deadline():
    async def scenario(queue: WorkQueue[str]) -> None:
        queue.add("a", after_seconds=5)
        assert (queue.depth, queue.delayed) == (0, 1)
        assert await queue.get() == "a"
        assert asyncio.get_running_loop().time() == 5

    in_virtual_time(scenario)


@pytest.mark.parametrize("delays", [(5, 2, 9), (2, 9, 5), (9, 5, 2)])
def test_the_earliest_deadline_wins(delays: tuple[int, ...]):
    async def scenario(queue: WorkQueue[str]) -> None:
        for seconds in delays:
            queue.add("a", after_seconds=seconds)
        assert await queue.get() == "a"
        assert asyncio.get_running_loop().time() == 2
        queue.done("a")
        await asyncio.sleep(20)
        assert queue.depth == 0

    in_virtual_time(scenario)


def test_delayed_keys_are_served_in_the_order_of_their_deadlines():
    async def scenario(queue: WorkQueue[str]) -> None:
        for key, seconds in (("c", 3), ("a", 1), ("b", 2)):
            queue.add(key, after_seconds=seconds)
        assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]

    in_virtual_time(scenario)


def test_an_immediate_add_absorbs_a_delayed_one():
    async def scenario(queue: WorkQueue[str]) -> None:
        queue.add("a", after_seconds=5)
        queue.add("a")
        assert await take_all(queue) == ["a"]
        await asyncio.sleep(10)
        assert queue.depth == 0

    in_virtual_time(scenario)


async def test_a_delayed_add_of_a_ready_key_is_absorbed(queue: WorkQueue[str]):
    queue.add("b", priority=Priority.STARTUP)
    queue.add("a", priority=Priority.RESYNC)
    queue.add("a", after_seconds=5)
    assert queue.delayed == 0
    assert await take_all(queue) == ["a", "b"]


async def test_a_delayed_add_of_a_dirty_key_is_absorbed(queue: WorkQueue[str]):
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a", after_seconds=5)
    queue.done("a")
    assert (queue.depth, queue.delayed) == (1, 0)


def test_a_running_key_may_ask_for_a_later_pass():
    async def scenario(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await queue.get()
        queue.add("a", after_seconds=5)
        queue.done("a")
        assert queue.depth == 0
        assert await queue.get() == "a"
        assert asyncio.get_running_loop().time() == 5

    in_virtual_time(scenario)


def test_a_deadline_that_passes_while_the_key_runs_makes_it_dirty():
    async def scenario(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await queue.get()
        queue.add("a", after_seconds=5)
        await asyncio.sleep(6)
        assert queue.depth == 0
        queue.done("a")
        assert queue.depth == 1

    in_virtual_time(scenario)


def test_a_delayed_key_keeps_its_highest_priority():
    async def scenario(queue: WorkQueue[str]) -> None:
        queue.add("a", priority=Priority.RESYNC, after_seconds=1)
        queue.add("a", priority=Priority.CHANGE, after_seconds=2)
        await asyncio.sleep(1)
        queue.add("b", priority=Priority.STARTUP)
        assert await take_all(queue) == ["a", "b"]

    in_virtual_time(scenario)


def test_an_earlier_deadline_leaves_the_later_one_without_effect():
    async def scenario(queue: WorkQueue[str]) -> None:
        queue.add("b", after_seconds=5)
        queue.add("a", after_seconds=5)
        queue.add("a", after_seconds=2)
        await asyncio.sleep(3)
        assert await take_all(queue) == ["a"]
        await asyncio.sleep(3)
        assert await take_all(queue) == ["b"]

    in_virtual_time(scenario)


def test_there_is_one_timer_for_all_delays():
    async def scenario(queue: WorkQueue[str]) -> None:
        for number in range(1000):
            queue.add(f"key-{number}", after_seconds=1 + number)
        loop = asyncio.get_running_loop()
        assert sum(not timer.cancelled() for _, _, timer in loop._timers) == 1

    in_virtual_time(scenario)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_deadline_in_the_past_fires_immediately(new_loop):
    """A worker that held the loop for longer than the delay comes back to it: uvloop then sets no timer."""

    async def scenario() -> list[str]:
        queue: WorkQueue[str] = WorkQueue(rng=random.Random(0))
        queue.add("a", after_seconds=0.001)
        queue.add("b", after_seconds=60)
        queue.add("c", after_seconds=1e-9)
        time.sleep(0.002)
        queue.add("d", after_seconds=1e-9)
        return sorted([await queue.get() or "" for _ in range(3)])

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(scenario()) == ["a", "c", "d"]


def test_absorbed_deadlines_do_not_pile_up():
    async def scenario(queue: WorkQueue[str]) -> None:
        queue.add("other", after_seconds=1)
        for _ in range(10_000):
            queue.add("a", after_seconds=3600)
            queue.add("a")
            await take_all(queue)
        assert len(queue._heap) < 200
        assert await queue.get() == "other"

    in_virtual_time(scenario)


def test_each_failure_doubles_the_wait_up_to_a_bound():
    backoff = Backoff(first_seconds=1, max_seconds=10)
    rng = random.Random(1)
    for failures, least in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (500, 10)):
        assert least <= backoff.delay_seconds(failures, rng) <= least * 1.25


def test_a_retried_key_is_served_after_the_returned_delay():
    async def scenario(queue: WorkQueue[str]) -> None:
        delay = queue.retry("a")
        assert await queue.get() == "a"
        assert asyncio.get_running_loop().time() == pytest.approx(delay)

    in_virtual_time(scenario)


async def test_failures_are_counted_per_key_until_forgotten(queue: WorkQueue[str]):
    assert queue.retry("a") < queue.retry("a") < queue.retry("a")
    queue.retry("b")
    assert (queue.failures("a"), queue.failures("b")) == (3, 1)
    queue.forget("a")
    assert (queue.failures("a"), queue.failures("b")) == (0, 1)


async def test_a_fresh_change_does_not_wait_for_the_backoff(queue: WorkQueue[str]):
    queue.retry("a")
    queue.add("a")
    assert queue.depth == 1


async def test_closing_sends_every_worker_home(queue: WorkQueue[str]):
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    assert await asyncio.gather(*getters) == [None, None, None]
    assert await queue.get() is None


async def test_a_closed_queue_drops_waiting_keys_and_rejects_new_ones(queue: WorkQueue[str]):
    queue.add("ready")
    queue.add("delayed", after_seconds=5)
    queue.close()
    queue.add("late")
    assert (queue.depth, queue.delayed) == (0, 0)


async def test_a_dirty_key_of_a_closed_queue_is_dropped(queue: WorkQueue[str]):
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.close()
    queue.done("a")
    assert queue.depth == 0


def test_waiting_and_working_times_are_observed():
    async def scenario(_: WorkQueue[str]) -> None:
        waits: list[float] = []
        works: list[float] = []
        queue: WorkQueue[str] = WorkQueue(
            rng=random.Random(0), observe_wait=waits.append, observe_work=works.append
        )
        queue.add("a")
        await asyncio.sleep(2)
        await queue.get()
        await asyncio.sleep(3)
        assert queue.longest_running_seconds() == 3
        queue.done("a")
        assert queue.longest_running_seconds() == 0
        assert (waits, works) == ([2], [3])

    in_virtual_time(scenario)
