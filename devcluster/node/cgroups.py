"""The control groups of a cluster's containers, which the kernel keeps after their processes are gone."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

HIERARCHIES = Path("/sys/fs/cgroup")
PASSED_ON = ("cpu", "cpuset", "io", "memory", "pids")
"""Controllers that a kubelet needs in the group of its containers."""


def group_name(directory: Path) -> str:
    """Name the group under which all containers of the cluster in a directory are."""
    return f"devcluster-{hashlib.sha256(str(directory).encode()).hexdigest()[:8]}"


def has_memory_limits(hierarchies: Path = HIERARCHIES) -> bool:
    """Return whether memory can be limited, with cgroup v1 or v2."""
    unified = hierarchies / "cgroup.controllers"
    if unified.exists():
        return "memory" in unified.read_text().split()
    return os.access(hierarchies / "memory" / "tasks", os.W_OK)


def make_groups(directory: Path, hierarchies: Path = HIERARCHIES) -> None:
    """Make the group of a cluster's containers in every hierarchy."""
    name = group_name(directory)
    if (hierarchies / "cgroup.controllers").exists():
        _make_unified_group(hierarchies, name)
        return
    for hierarchy in hierarchies.iterdir():
        if (hierarchy / "cgroup.procs").exists():
            (hierarchy / name).mkdir(exist_ok=True)
    for setting in ("cpuset.cpus", "cpuset.mems"):
        # A new group has no processors and memory nodes until they are copied from its parent.
        for whole in hierarchies.glob(f"*/{setting}"):
            (whole.parent / name / setting).write_text(whole.read_text())


def _make_unified_group(top: Path, name: str) -> None:
    available = (top / "cgroup.controllers").read_text().split()
    # Refused below the root of the hierarchy; there the parent group decides.
    with suppress(OSError):
        (top / "cgroup.subtree_control").write_text(
            " ".join(f"+{each}" for each in PASSED_ON if each in available)
        )
    (top / name).mkdir(exist_ok=True)


def remove_groups(directory: Path, hierarchies: Path = HIERARCHIES) -> None:
    """Remove the empty groups that a cluster's containers left in every hierarchy."""
    name = group_name(directory)
    for top in (hierarchies / name, *hierarchies.glob(f"*/{name}")):
        for path, _, _ in os.walk(top, topdown=False):
            # A group with a process in it stays; that process is not ours to end.
            with suppress(OSError):
                Path(path).rmdir()
