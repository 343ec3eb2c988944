"""What this machine gives to the pods of one run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from paddlejob.kubelet.environment import Contents
from paddlejob.kubelet.restart import FIRST_BACK_OFF_SECONDS
from paddlejob.local.input.images import Images
from paddlejob.local.pod.capabilities import Capabilities
from paddlejob.local.pod.volumes import Claims
from paddlejob.local.store.run_directory import RunDirectory

KEPT_FROM_HERE = (
    *("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR"),
    *("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
"""What a container gets of the environment of whoever started the run; all else would differ on a cluster."""


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
    back_off_seconds: float = FIRST_BACK_OFF_SECONDS
    """How long a container that crashed again waits; doubled each time."""
    config_retry_seconds: float = 12.0
    """How often a container tries again whose ConfigMap is missing, if nothing wakes it before."""


FindContents = Callable[[str], Contents | None]


def inherited(environ: Mapping[str, str], search_path: str, threads: int) -> dict[str, str]:
    """Return the variables that every container starts from.

    The pods of a job share the cores of one machine, so each may use only its part of them.
    """
    kept = {name: environ[name] for name in KEPT_FROM_HERE if name in environ}
    return {"LANG": "C.UTF-8", **kept, "PATH": search_path, "OMP_NUM_THREADS": str(threads)}


def allocatable() -> dict[str, object]:
    """Return what this machine has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": os.cpu_count() or 1, "memory": memory}


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
