"""What the kernel keeps of an attempt whose processes are gone: memory files, file modes, OOM kills."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from contextlib import suppress
from typing import AbstractSet, Dict, Mapping

SHARED_MEMORY = "/dev/shm"  # noqa: S108
LEFT_BY_TRAINING = re.compile(r"(paddle_\d+_|psm_|sem\.mp-|nccl-|__KMP_REGISTERED_LIB_)")
"""Names of Paddle's data loaders, Python's multiprocessing, NCCL and OpenMP."""
OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""The cgroup of the container: version 2, version 1."""


def files(directory: str = SHARED_MEMORY) -> frozenset[str]:
    """Return the names of the memory files."""
    try:
        return frozenset(os.listdir(directory))
    except OSError:
        return frozenset()


def remove_files(kept: AbstractSet[str], directory: str = SHARED_MEMORY) -> None:
    """Remove memory files of killed processes; they would take memory until the pod ends.

    All containers of a pod may share the directory. So a file goes only if it was not there before the
    program, has a name that training libraries give, belongs to this user, and no process has it open or
    mapped. The last is also true of processes in other containers, which are not visible here.
    """
    for name in files(directory) - kept:
        if LEFT_BY_TRAINING.match(name):
            with suppress(OSError):
                _remove_unused(os.path.join(directory, name))


def _remove_unused(path: str) -> None:
    # Without waiting and without following links: another container may have made the file.
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            # The kernel grants this lease only if no other process has the file open.
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            os.unlink(path)
    finally:
        os.close(file)


def modes() -> Dict[int, int]:
    """Return the modes of the standard files; one that does not wait is shared by all processes."""
    found = {}
    for file in range(3):
        with suppress(OSError):
            found[file] = fcntl.fcntl(file, fcntl.F_GETFL)
    return found


def restore_modes(modes: Mapping[int, int]) -> None:
    """Give the standard files their modes back."""
    for file, mode in modes.items():
        with suppress(OSError):
            fcntl.fcntl(file, fcntl.F_SETFL, mode)


def oom_kills() -> int:
    """Return how many processes of this container the kernel has killed for lack of memory."""
    for path in OOM_COUNTERS:
        with suppress(OSError, ValueError):
            with open(path, encoding="ascii") as file:
                counts = dict(line.split() for line in file)
            return int(counts["oom_kill"]) if "oom_kill" in counts else 0
    return 0
