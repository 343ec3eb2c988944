from __future__ import annotations

import asyncio

import pytest

from simkube import virtual_loop
from tests.support.waiting import eventually, eventually_async


def test_what_is_found_is_returned():
    answers = iter([0, None, 7])
    assert eventually(lambda: next(answers)) == 7


def test_errors_that_are_ignored_are_raised_in_the_end():
    with pytest.raises(KeyError):
        eventually(lambda: {}["a"], within_seconds=0.01, ignoring=(KeyError,))
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 // 0, ignoring=(KeyError,))


def test_what_never_comes_is_explained():
    with pytest.raises(AssertionError, match="still blue"):
        eventually(lambda: False, within_seconds=0.01, says=lambda: "still blue")


def test_an_event_loop_waits_by_its_own_clock():
    async def main():
        began = asyncio.get_running_loop().time()

        async def is_late():
            return asyncio.get_running_loop().time() - began > 120

        assert await eventually_async(is_late, within_seconds=240)
        with pytest.raises(AssertionError, match="not within 60 s"):
            await eventually_async(lambda: False)

    virtual_loop.run(main())
