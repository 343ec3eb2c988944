"""Waiting for a condition: once for plain tests, once for those in an event loop, in real or virtual time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
INTERVAL_SECONDS = 0.02


def eventually(
    probe: Callable[[], T],
    *,
    within_seconds: float = PATIENCE_SECONDS,
    ignoring: tuple[type[Exception], ...] = (),
    says: Callable[[], object] = str,
) -> T:
    """Return what the probe finds as soon as it is true; `says` explains when it never is.

    Raises: AssertionError, or the last of the errors that were ignored so far.
    """
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            if found := probe():
                return found
        except ignoring:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, f"not within {within_seconds:g} s: {says()}"
        time.sleep(INTERVAL_SECONDS)


async def eventually_async(
    probe: Callable[[], T | Awaitable[T]],
    *,
    within_seconds: float = PATIENCE_SECONDS,
    says: Callable[[], object] = str,
) -> T:
    """Do the same by the clock of the running loop; the probe and `says` may be coroutine functions."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + within_seconds
    while not (found := await _value(probe())):
        if clock() > deadline:
            raise AssertionError(f"not within {within_seconds:g} s: {await _value(says())}")
        await asyncio.sleep(INTERVAL_SECONDS)
    return found


async def _value(given: T | Awaitable[T]) -> T:
    return await given if inspect.isawaitable(given) else given
