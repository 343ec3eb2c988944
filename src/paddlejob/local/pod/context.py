"""The settings and resources shared by all pods of a run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from paddlejob.kubelet import FIRST_BACK_OFF_SECONDS, Contents
from paddlejob.local.input.images import Images
from paddlejob.local.pod.capabilities import Capabilities
from paddlejob.local.pod.volumes import Claims
from paddlejob.local.store.run_directory import RunDirectory

INHERITED_VARIABLES = (
    *("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR"),
    *("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
"""Variables that containers inherit from the user's shell; a cluster would not have any others."""


class RunContext(msgspec.Struct, frozen=True):
    """The machine, the run's directory and the options."""

    name: str
    run: RunDirectory
    memory: Path
    """Directory of memory volumes."""
    capabilities: Capabilities
    images: Images
    claims: Claims
    secrets: Mapping[str, Contents]
    job_directory: Path
    """Working directory of containers of unknown images."""
    search_path: str
    """PATH of the containers, which finds the chosen interpreter as `python`."""
    environ: Mapping[str, str]
    threads: int
    visible_devices: Mapping[str, str] = {}
    """Accelerators that each pod may use, by pod name."""
    back_off_seconds: float = FIRST_BACK_OFF_SECONDS
    """Initial back-off of a crashing container; doubled each time."""
    config_retry_seconds: float = 12.0
    """Retry interval of a container whose ConfigMap is missing; a change of the pod wakes it earlier."""


FindContents = Callable[[str], Contents | None]


def base_environment(environ: Mapping[str, str], search_path: str, threads: int) -> dict[str, str]:
    """Return the variables of every container.

    The pods share the cores of one machine, so each is limited to its share of threads.
    """
    kept = {name: environ[name] for name in INHERITED_VARIABLES if name in environ}
    return {"LANG": "C.UTF-8", **kept, "PATH": search_path, "OMP_NUM_THREADS": str(threads)}


def allocatable() -> dict[str, object]:
    """Return the CPU and memory of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": os.cpu_count() or 1, "memory": memory}


def write_python_shims(directory: Path, python: str) -> None:
    """Create `python` and `python3` in a directory.

    They are scripts, not links, because an interpreter finds its virtualenv by the path it is started with.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        shim = directory / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n')
        shim.chmod(0o755)


def search_path(shims: Path, python: str, inherited: str) -> str:
    """Return a PATH with the chosen interpreter first, then the scripts installed with it."""
    return os.pathsep.join((str(shims), str(Path(python).parent), inherited))
