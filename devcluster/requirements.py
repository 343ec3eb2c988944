"""Requirements of a cluster on its machine, and the programs of its components."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from devcluster.build.compile import Progress, ensure
from devcluster.build.programs import PROGRAMS
from devcluster.errors import DevclusterError
from devcluster.node.cgroups import has_memory_limits
from devcluster.node.components import NETWORK_PLUGINS, PLUGIN_DIRECTORIES
from devcluster.processes import ADMINISTRATION
from devcluster.settings import ClusterSettings

PACKAGES = {
    "buildah": "buildah",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
}
"""The programs a node needs from the system, and the Debian packages that have them."""
PLUGIN_PACKAGE = "containernetworking-plugins"
"""Its programs are looked for in their own directory: `bridge` on the PATH is a program of iproute2."""

BOOTSTRAP_PACKAGES = {name: PACKAGES[name] for name in ("mmdebstrap", "unshare", "mount")}
"""The program that creates the files of a Debian system."""

ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")
"""Runs a command; its mounts and processes end with it."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def programs_for(settings: ClusterSettings) -> dict[str, Path]:
    """Return the path of every component's program; build or install missing ones.

    Raises: DevclusterError, in one sentence, when this machine cannot run the cluster.
    """
    if settings.has_node:
        require_node()
    built = [name for name in settings.components if name in PROGRAMS]
    extra = ("pki", "pause") if settings.has_node else ("pki",)
    programs = ensure((*extra, *built), kubernetes=settings.kubernetes)
    system = {"machine": "unshare", "containerd": "containerd"}
    found = {name: find_program(program) for name, program in system.items() if name in settings.components}
    return programs | {name: path for name, path in found.items() if path is not None}


def require_node(progress: Progress | None = None) -> None:
    """Make sure that a node can run here, installing Debian packages that are missing.

    Raises: DevclusterError, in one sentence, when it cannot.
    """
    obstacle = obstacle_to_a_node()
    if obstacle is not None:
        raise DevclusterError(obstacle)
    _require_packages(missing_packages, progress)


def require_bootstrap(progress: Progress | None = None) -> None:
    """Make sure that a Debian system can be made here and entered, installing packages that are missing.

    Raises: DevclusterError, in one sentence, when it cannot.
    """
    if os.geteuid() != 0:
        raise DevclusterError("A bare Debian is made and entered by root: run this with sudo.")
    _require_packages(lambda: _missing(BOOTSTRAP_PACKAGES), progress)


def _require_packages(missing: Callable[[], list[str]], progress: Progress | None) -> None:
    names = missing()
    if names:
        _install(names, progress or Progress(sys.stderr))
        names = missing()
    if names:
        raise DevclusterError(f"The installed packages lack programs of {', '.join(names)}.")


def obstacle_to_a_node() -> str | None:
    """Return why a real node cannot run here, in one sentence, or None."""
    if sys.platform != "linux":
        return f"A real node needs Linux, this is {sys.platform}."
    if os.geteuid() != 0:
        return "A real node needs root: run this with sudo, or use the cluster without --node."
    if not has_memory_limits():
        return (
            "A real node needs control groups with a memory controller under /sys/fs/cgroup; there are none."
        )
    refusal = _refusal_of_namespaces()
    if refusal:
        return f"A real node needs namespaces of its own, which are refused here: {refusal}."
    missing = missing_packages()
    if missing and shutil.which("apt-get") is None:
        return f"A real node needs {', '.join(missing)}, and there is no apt-get to install them with."
    return None


def _refusal_of_namespaces() -> str:
    """Give the kernel's reason not to make the namespaces of a node, empty when it makes them."""
    unshare = find_program("unshare")
    if unshare is None:
        return ""
    command = [str(unshare), "--pid", "--fork", "--mount", "--net", "--uts", "--ipc", "true"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stderr.strip() if result.returncode != 0 else ""


def find_program(name: str) -> Path | None:
    """Find a program of the system, also in sbin directories."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{ADMINISTRATION}")
    return Path(found) if found else None


def plugin_directory() -> str | None:
    """Find the directory that has every network plugin of a node, None when there is none."""
    return next((path for path in PLUGIN_DIRECTORIES if _has_plugins(Path(path))), None)


def _has_plugins(directory: Path) -> bool:
    return all(os.access(directory / name, os.X_OK) for name in NETWORK_PLUGINS)


def missing_packages(packages: Mapping[str, str] = PACKAGES) -> list[str]:
    """Return the missing Debian packages of a node."""
    plugins = [PLUGIN_PACKAGE] if plugin_directory() is None else []
    return sorted([*_missing(packages), *plugins])


def _missing(packages: Mapping[str, str]) -> list[str]:
    missing = {package for program, package in packages.items() if find_program(program) is None}
    return sorted(missing if KEYRING.exists() else missing | {"debian-archive-keyring"})


def _install(packages: Iterable[str], progress: Progress) -> None:
    names = list(packages)
    progress.say(f"installing the Debian packages {' '.join(names)}")
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *names]
    outcome = _apt(install)
    if outcome.returncode != 0:
        # The lists of packages may be old, or not there at all.
        _apt(["apt-get", "update", "--quiet"])
        outcome = _apt(install)
    if outcome.returncode != 0:
        last = (outcome.stderr.strip() or outcome.stdout.strip()).splitlines()[-1:]
        raise DevclusterError(f"The packages {' '.join(names)} could not be installed: {' '.join(last)}")


def _apt(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
