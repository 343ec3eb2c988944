"""Volumes in memory that outlived their run, because its runner was killed before it could remove them."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from paddlejob.local.run_directory import RunDirectory
from paddlejob.local.volumes import MEMORY

_PREFIX = "paddlejob-"
_OWNER = ".run"


def claim(run: RunDirectory, memory: Path = MEMORY) -> Path:
    """Return a run's directory in memory, marked with the run it belongs to; on disk where there is none."""
    place = memory / f"{_PREFIX}{run.name}"
    try:
        place.mkdir(mode=0o700)
    except OSError:
        place = run.path / "memory"
        place.mkdir(exist_ok=True)
    (place / _OWNER).symlink_to(run.path)
    return place


def sweep(memory: Path = MEMORY) -> None:
    """Remove what dead runs of this user left."""
    for place in memory.glob(f"{_PREFIX}*"):
        # Of other users' runs nothing is known, and nothing may be removed.
        with contextlib.suppress(OSError):
            run = RunDirectory((place / _OWNER).readlink())
            if not run.path.exists() or not run.is_alive:
                shutil.rmtree(place, ignore_errors=True)
