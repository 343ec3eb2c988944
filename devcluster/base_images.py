"""The images that a Dockerfile may start FROM, made from Debian packages, for there is no registry to ask."""

from __future__ import annotations

import hashlib
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from devcluster.layers import BuiltLayer, build, find
from devcluster.programs import DevclusterError
from devcluster.requirements import ISOLATED

RECIPE = 2
"""To be raised when the same packages would give another base."""
SUITES = {"3.11": "bookworm", "3.13": "trixie"}
"""The Debian release that has a Python version."""
PYTHON = ("python3", "python3-pip", "python3-venv", "ca-certificates")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
NOT_KEPT = ("Dir::Cache::pkgcache", "Dir::Cache::srcpkgcache")
"""Files of apt that would make every layer with an `apt-get` 80 MB larger."""


@dataclass(frozen=True)
class Base:
    """A Debian release with some packages."""

    suite: str
    packages: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """A hash of what decides its content."""
        return hashlib.sha256(repr((RECIPE, self, LEFT_OUT)).encode()).hexdigest()[:24]

    def __str__(self) -> str:
        """Say what it is."""
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


def ensure_base(base: Base) -> BuiltLayer:
    """Give the layer of a base, making it if it is not there."""
    return find(base.key) or build(base.key, lambda tree: _fill(base, tree))


def _fill(base: Base, tree: Path) -> None:
    bootstrap(base, tree)
    if base.packages:
        _like_the_public_python_image(tree)


def bootstrap(base: Base, tree: Path) -> None:
    """Install a Debian release with its packages into an empty directory.

    Raises: DevclusterError when that fails.
    """
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    options += [f'--aptopt={setting} ""' for setting in NOT_KEPT]
    packages = [f"--include={','.join(base.packages)}"] if base.packages else []
    command = [
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        "--quiet",
        *options,
        *packages,
        base.suite,
        str(tree),
    ]
    # In a mount namespace, so that an interrupted run leaves no mount behind.
    result = subprocess.run([*ISOLATED, *command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DevclusterError(f"{base} could not be made: {result.stderr.strip()}")


def _like_the_public_python_image(tree: Path) -> None:
    """Add the names `python` and `pip`, and let pip install: nothing else manages packages in an image."""
    for name in ("python", "pip"):
        link = tree / "usr/local/bin" / name
        if not link.exists():
            link.symlink_to(f"/usr/bin/{name}3")
    for marker in tree.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
