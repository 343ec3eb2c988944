"""Tests that are coroutines under virtual time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from simkube import virtual_loop


def simulated(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a virtual loop, with a day of its time at most."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        virtual_loop.run(test(*args, **kwargs), max_virtual_seconds=86400.0)

    return run
