"""Directories in memory for the volumes of runs; those whose runner was killed are removed by later runs."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from paddlejob.local.store import file_lock
from paddlejob.local.store.run_directory import RunDirectory

MEMORY = Path("/dev/shm")  # noqa: S108 - that is where memory is
_PREFIX = "paddlejob-"
_LOCK = ".lock"


@contextlib.contextmanager
def claim(run: RunDirectory, memory: Path = MEMORY) -> Iterator[Path]:
    """Yield a run's directory in memory, or on disk where there is no memory; it is removed at the end.

    The lock is inside the directory, so that runs of other containers that share the memory see it too.
    """
    place = memory / f"{_PREFIX}{run.name}"
    try:
        place.mkdir(mode=0o700)
    except OSError:
        place = run.path / "memory"
        place.mkdir(exist_ok=True)
    lock = file_lock.hold(place / _LOCK)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def sweep(memory: Path = MEMORY) -> None:
    """Remove what dead runs of this user left."""
    for place in memory.glob(f"{_PREFIX}*"):
        # Of other users' directories nothing is known, and nothing may be removed.
        with contextlib.suppress(OSError):
            if not file_lock.is_held(place / _LOCK):
                shutil.rmtree(place, ignore_errors=True)
