"""Looks for processes by a mark in their environment, so that a test can prove that none is left."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable
from pathlib import Path

PATIENCE_SECONDS = 90.0


def fresh_mark() -> str:
    """Return a text that no other process has in its environment."""
    return f"mark-{uuid.uuid4().hex}"


def marked(mark: str) -> set[int]:
    """Return every process of this machine that has the mark in its environment."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes():
                    found.add(int(entry.name))
    return found


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        await asyncio.sleep(0.01)


def eventually_sync(condition: Callable[[], bool]) -> None:
    """Wait until something is true, outside of an event loop."""
    asyncio.run(eventually(condition))
