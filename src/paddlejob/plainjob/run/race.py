"""Runs one task while watching for reasons to cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def race(work: Coroutine[Any, Any, T], *guards: Coroutine[Any, Any, None]) -> T:
    """Return the result of `work`, unless a guard raises first; then work is cancelled.

    A guard that returns is no longer watched. All have ended when this returns.
    """
    main = asyncio.ensure_future(work)
    watching = [asyncio.ensure_future(guard) for guard in guards]
    try:
        pending: set[asyncio.Future[Any]] = {main, *watching}
        while not main.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for guard in done - {main}:
                if not main.done():
                    guard.result()
        return main.result()
    finally:
        await _cancelled([main, *watching])


async def _cancelled(tasks: list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio logs no warning about it
