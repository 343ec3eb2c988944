"""Runs one RUN of a Dockerfile: `build_step.py ORDER.json`, started by unshare(1) in new namespaces.

The image's layers are mounted on top of each other; what the command changes ends up in the uppermost
directory. All mounts are this process's own and end with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Do what the order says and become the command."""
    order: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    root = Path(order["root"])
    lower = ":".join(order["layers"])
    options = (
        f"lowerdir={lower},upperdir={order['upper']},workdir={order['work']},redirect_dir=off,metacopy=off"
    )
    mount("-t", "overlay", "overlay", "-o", options, str(root))
    mount("-t", "proc", "proc", str(root / "proc"))
    mount("--rbind", "/dev", str(root / "dev"))
    for source, target in order["binds"]:
        place = root / target.lstrip("/")
        make_mount_point(Path(source), place)
        mount("--rbind", source, str(place))
    os.chroot(root)
    os.chdir(order["directory"])
    os.setgroups([])
    os.setgid(order["gid"])
    os.setuid(order["uid"])
    os.execvpe(order["command"][0], order["command"], order["environment"])


def make_mount_point(source: Path, place: Path) -> None:
    """Make the directory or the empty file that something is mounted on."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        place.mkdir(exist_ok=True)
    elif not place.exists():
        place.touch()


def mount(*arguments: str) -> None:
    """Mount something, or fail."""
    subprocess.run(["mount", "--no-mtab", *arguments], check=True)


if __name__ == "__main__":
    main()
