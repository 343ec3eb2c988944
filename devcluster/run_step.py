"""Runs the command of a RUN in the files of an image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devcluster.programs import DevclusterError
from devcluster.requirements import ISOLATED

SCRIPT = Path(__file__).with_name("build_step.py")
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""What a command needs to reach package indexes as this machine does; nothing of it stays in the image."""
PASSED_ON = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
TAIL_LINES = 20


@dataclass(frozen=True)
class Step:
    """A command, and what it sees."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    uid: int
    gid: int
    layers: tuple[Path, ...]


def perform(step: Step, tree: Path) -> None:
    """Run the command; `tree` then holds what it changed.

    Raises: DevclusterError with its last lines when it fails.
    """
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix="step-") as scratch:
        home = Path(scratch)
        for name in ("root", "work"):
            (home / name).mkdir()
        order = home / "order.json"
        order.write_text(json.dumps(_order(step, tree, home)))
        script = [sys.executable, "-I", "-S", str(SCRIPT), str(order)]
        result = subprocess.run(
            [*ISOLATED, *script], capture_output=True, text=True, errors="replace", check=False
        )
    if result.returncode != 0:
        tail = "\n".join(f"{result.stdout}{result.stderr}".splitlines()[-TAIL_LINES:])
        raise DevclusterError(f"`{step.command[-1]}` ended with code {result.returncode}:\n{tail}")
    _remove_mount_points(step, tree)


def _order(step: Step, tree: Path, home: Path) -> dict[str, object]:
    return {
        "root": str(home / "root"),
        "work": str(home / "work"),
        "upper": str(tree),
        # The kernel wants the topmost layer first.
        "layers": [str(layer) for layer in reversed(step.layers)],
        "binds": [(path, path) for path in borrowed_paths()],
        "directory": step.directory,
        "uid": step.uid,
        "gid": step.gid,
        "command": step.command,
        "environment": {**passed_on(), **step.environment},
    }


def passed_on() -> dict[str, str]:
    """Give the variables by which this machine's clients find package indexes."""
    return {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}


def borrowed_paths() -> list[str]:
    """Name the files and directories of this machine that the command sees while it runs."""
    named = (value for value in passed_on().values() if value.startswith("/"))
    return [path for path in dict.fromkeys((*NETWORK_FILES, *named)) if Path(path).exists()]


def _remove_mount_points(step: Step, tree: Path) -> None:
    """Remove the empty files and directories that were mounted on, unless a layer below has them anyway."""
    for borrowed in borrowed_paths():
        path = tree / borrowed.lstrip("/")
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file() and path.stat().st_size == 0:
            path.unlink()
        _remove_empty_parents(path.parent, tree, step)


def _remove_empty_parents(path: Path, tree: Path, step: Step) -> None:
    while path != tree and path.is_dir() and not any(path.iterdir()):
        below = [layer / path.relative_to(tree) for layer in step.layers]
        if any(each.is_dir() for each in below):
            return
        path.rmdir()
        path = path.parent
