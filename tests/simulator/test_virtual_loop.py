from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from simkube import virtual_loop
from simkube.virtual_loop import (
    EPOCH,
    DeadlockError,
    SimulationError,
    StepLimitError,
    TimeLimitError,
    TraceEntry,
    run,
)


async def sleepers(count: int = 8) -> list[int]:
    """Return the order in which tasks that are due at the same moment wake."""
    woken: list[int] = []

    async def sleep(number: int) -> None:
        await asyncio.sleep(1)
        woken.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(sleep(number))
    return woken


def test_the_result_comes_back() -> None:
    async def main() -> int:
        return 42

    assert run(main()) == 42


def test_an_hour_takes_no_time() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run(main()) == 3600
    assert time.monotonic() - began < 60


def test_timers_fire_in_order_at_their_moment() -> None:
    async def main() -> list[float]:
        loop, fired = asyncio.get_running_loop(), []
        for seconds in (3.0, 1.0, 2.5):
            loop.call_later(seconds, lambda: fired.append(loop.time()))
        await asyncio.sleep(5)
        return fired

    assert run(main()) == [1.0, 2.5, 3.0]


def test_a_wait_too_short_for_the_clock_still_moves_it() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(140.872)
        began = loop.time()
        await asyncio.sleep(1e-15)
        assert loop.time() > began

    run(main())


def test_a_cancelled_timer_does_not_hold_the_clock() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        for _ in range(500):
            loop.call_later(1, print).cancel()
        await asyncio.sleep(2)
        return loop.time()

    assert run(main()) == 2


def test_timeouts_work() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run(main()) == 7


def test_the_date_follows_the_clock() -> None:
    async def main() -> datetime:
        assert virtual_loop.now() == EPOCH
        await asyncio.sleep(90)
        return virtual_loop.now()

    assert run(main()) == EPOCH + timedelta(seconds=90)


async def test_on_a_real_loop_the_date_is_the_real_one() -> None:
    assert abs(virtual_loop.now() - datetime.now(UTC)) < timedelta(minutes=1)


def test_one_seed_is_one_order() -> None:
    assert run(sleepers(), seed=7) == run(sleepers(), seed=7)


def test_many_seeds_are_many_orders() -> None:
    orders = {tuple(run(sleepers(4), seed=seed)) for seed in range(200)}
    assert len(orders) == 24


def test_one_seed_is_one_trace() -> None:
    traces: list[list[TraceEntry]] = [[], []]
    for trace in traces:
        run(sleepers(), seed=3, trace=trace)
    assert traces[0] == traces[1]
    assert any(entry.seconds == 1.0 for entry in traces[0])


def test_one_seed_is_one_trace_in_another_process() -> None:
    program = (
        "from tests.simulator.test_virtual_loop import sleepers\n"
        "from simkube.virtual_loop import run\n"
        "trace = []\n"
        "print(run(sleepers(), seed=5, trace=trace), trace)"
    )
    command = [sys.executable, "-c", program]
    first, second = (subprocess.check_output(command, text=True) for _ in range(2))
    assert first == second


def test_a_set_of_tasks_has_one_order() -> None:
    async def main() -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(1)) for _ in range(20)}
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in done]

    assert run(main(), seed=1) == run(main(), seed=1)


def test_a_deadlock_names_the_tasks_and_where_they_wait() -> None:
    async def wait_for_godot() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(wait_for_godot(), name="vladimir")

    with pytest.raises(
        DeadlockError, match=r"(?s)nothing is ready.*main: .*vladimir: .*wait_for_godot.*\.py:"
    ):
        run(main())


def test_too_much_virtual_time_is_an_error() -> None:
    with pytest.raises(TimeLimitError, match="more than 60 virtual seconds"):
        run(asyncio.sleep(61), max_virtual_seconds=60)


def test_a_loop_that_never_waits_is_an_error() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(StepLimitError, match="more than 1000 steps"):
        run(main(), max_steps=1000)


def test_what_main_leaves_behind_is_cancelled() -> None:
    ended = []

    async def linger() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            ended.append(True)

    async def main() -> None:
        task = asyncio.create_task(linger())
        await asyncio.sleep(1)
        assert not task.done()

    run(main())
    assert ended == [True]


def test_tasks_are_cancelled_also_after_a_limit_was_hit() -> None:
    ended = []

    async def spin() -> None:
        try:
            while True:
                await asyncio.sleep(0)
        finally:
            ended.append(True)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(spin())

    with pytest.raises(StepLimitError):
        run(main(), max_steps=100)
    assert ended == [True] * 3


def test_a_task_that_does_not_end_is_an_error() -> None:
    async def stay() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1e6)

    async def main() -> None:
        task = asyncio.create_task(stay(), name="stubborn")
        await asyncio.sleep(1)
        assert not task.done()

    with pytest.raises(SimulationError, match="stubborn"):
        run(main())


def test_what_main_raises_comes_through() -> None:
    async def main() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run(main())


def test_what_a_callback_raises_is_not_lost() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(BaseExceptionGroup) as caught:
        run(main())
    assert caught.group_contains(ZeroDivisionError)


def test_threads_are_refused() -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="thread"):
        run(main())


async def test_a_run_inside_a_loop_is_refused() -> None:
    with pytest.raises(RuntimeError, match="inside another loop"):
        run(asyncio.sleep(0))


def test_the_garbage_collector_does_not_choose_when_a_forgotten_generator_ends():
    async def main() -> bool:
        return gc.isenabled()

    assert gc.isenabled()
    assert not virtual_loop.run(main())
    assert gc.isenabled()
