from __future__ import annotations

import asyncio

import pytest

from paddlejob.plainjob.run.pod import race


async def value(result):
    return result


async def failing(error):
    raise error


async def endless(log=None):
    try:
        await asyncio.Event().wait()
    finally:
        if log is not None:
            log.append("ended")


async def test_work_that_ends_ends_its_guards():
    log = []
    assert await race(value(1), endless(log)) == 1
    assert log == ["ended"]


async def test_a_guard_that_raises_ends_the_work():
    log = []

    async def after(error):
        await asyncio.sleep(0)
        raise error

    with pytest.raises(KeyError):
        await race(endless(log), after(KeyError()))
    assert log == ["ended"]


async def test_a_guard_that_returns_says_nothing():
    async def later():
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return 2

    assert await race(later(), value(None)) == 2


async def test_the_works_own_error_is_raised():
    with pytest.raises(ValueError, match="mine"):
        await race(failing(ValueError("mine")), endless())


async def test_cancellation_ends_everything():
    log = []
    task = asyncio.create_task(race(endless(log), endless(log)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["ended", "ended"]
