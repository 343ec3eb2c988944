"""Looks for processes by a mark in their environment, so that a test can prove that none is left."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path


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
