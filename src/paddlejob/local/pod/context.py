"""What this machine gives to the pods of one run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from paddlejob.local.input.documents import Contents
from paddlejob.local.input.images import Images
from paddlejob.local.pod.capabilities import Capabilities
from paddlejob.local.pod.volumes import Claims
from paddlejob.local.store.run_directory import RunDirectory

BACK_OFF_SECONDS = 10.0


class RunContext(msgspec.Struct, frozen=True):
    """The machine, the run's directory on it, and what the options say."""

    name: str
    run: RunDirectory
    memory: Path
    """Where volumes in memory are."""
    capabilities: Capabilities
    images: Images
    claims: Claims
    secrets: Mapping[str, Contents]
    job_directory: Path
    """The directory of the job's file, which containers of unknown images work in."""
    search_path: str
    """The containers' PATH; `python` in it is the chosen interpreter."""
    environ: Mapping[str, str]
    threads: int
    visible_devices: Mapping[str, str] = {}
    """By pod: the accelerators that it may use, where the machine has some."""
    back_off_seconds: float = BACK_OFF_SECONDS
    """How long a container that crashed again waits; doubled each time."""
    config_retry_seconds: float = 12.0
    """How often a container tries again whose ConfigMap is missing, if nothing wakes it before."""


FindContents = Callable[[str], Contents | None]


def write_python_shims(directory: Path, python: str) -> None:
    """Put `python` and `python3` into a directory.

    They are scripts, not links, because an interpreter finds its virtualenv by the path it is started with.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        shim = directory / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
        shim.chmod(0o755)


def search_path(shims: Path, python: str, inherited: str) -> str:
    """Return a PATH that finds the chosen interpreter first, then what is installed beside it."""
    return os.pathsep.join((str(shims), str(Path(python).parent), inherited))
