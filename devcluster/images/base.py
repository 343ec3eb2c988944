"""The images that a Dockerfile may start FROM, made from Debian packages because no registry is available."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevclusterError
from devcluster.requirements import ISOLATED

RECIPE = 3
"""To be raised when the same packages would give another base."""
SUITES = {"3.11": "bookworm", "3.13": "trixie"}
"""The Debian release that has a Python version."""
PYTHON = ("python3", "python3-pip", "python3-venv", "ca-certificates")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
NOT_KEPT = ("Dir::Cache::pkgcache", "Dir::Cache::srcpkgcache")
"""Files of apt that would make every layer with an `apt-get` 80 MB larger."""

LIKE_THE_PUBLIC_PYTHON_IMAGE = (
    "ln -s /usr/bin/python3 /usr/local/bin/python && ln -s /usr/bin/pip3 /usr/local/bin/pip "
    "&& rm -f /usr/lib/python3*/EXTERNALLY-MANAGED"
)
"""The names `python` and `pip`, and a pip that installs: nothing else manages packages in an image."""

OF_THIS_MACHINE = ("/etc/hostname", "/etc/resolv.conf")
"""Files that mmdebstrap copies from this machine; a container runtime provides its own."""


@dataclass(frozen=True)
class Base:
    """A Debian release with some packages."""

    suite: str
    packages: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """A hash of its inputs."""
        return hashlib.sha256(repr((RECIPE, self, LEFT_OUT)).encode()).hexdigest()[:24]

    def __str__(self) -> str:
        """Return its description."""
        return " with ".join(filter(None, (f"Debian {self.suite}", ", ".join(self.packages))))


def base_for(name: str) -> Base:
    """Give what stands for an image of the public registry: python:3.11-slim, debian:bookworm and the like.

    Raises: DevclusterError for an image that nothing here can stand for.
    """
    repository, _, tag = name.partition(":")
    if repository == "python" and (version := re.match(r"3\.\d+", tag)) and version[0] in SUITES:
        return Base(SUITES[version[0]], PYTHON)
    suite = tag.partition("-")[0]
    if repository == "debian" and suite in SUITES.values():
        return Base(suite)
    raise DevclusterError(
        f"FROM {name}: without a registry only python:3.11, python:3.13, debian:bookworm and debian:trixie "
        "can be made; give one of them as a build argument."
    )


def bootstrap(base: Base, target: Path, *, timestamp: int | None = None) -> None:
    """Install a Debian release with its packages into an empty directory, or into a tar file.

    With a `timestamp` a tar file depends on nothing but the packages: no file is newer, and compiled modules
    know their source by its content.

    Raises: DevclusterError when that fails.
    """
    environment = dict(os.environ)
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    options += [f'--aptopt={setting} ""' for setting in NOT_KEPT]
    if timestamp is not None:
        environment["SOURCE_DATE_EPOCH"] = str(timestamp)
        options += [f'--customize-hook=rm -f "$1{path}"' for path in OF_THIS_MACHINE]
    packages = [f"--include={','.join(base.packages)}"] if base.packages else []
    command = [
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        "--quiet",
        *options,
        *packages,
        base.suite,
        str(target),
    ]
    # In a mount namespace, so that an interrupted run leaves no mount behind.
    result = subprocess.run(
        [*ISOLATED, *command], env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise DevclusterError(f"{base} could not be made: {result.stderr.strip()}")


def dockerfile(base: Base) -> str:
    """Give the Dockerfile that makes an image of a base that is in `base.tar`."""
    lines = ["FROM scratch", "ADD base.tar /"]
    if base.packages:
        lines.append(f"RUN {LIKE_THE_PUBLIC_PYTHON_IMAGE}")
    return "\n".join(lines)
