"""Locks on files that say that a run is alive: the kernel frees them with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path


def hold(path: Path) -> int:
    """Lock a new file for as long as the returned descriptor is open; nobody ever sees the file unlocked."""
    temporary = path.with_name(f"{path.name}.new")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    temporary.rename(path)
    return descriptor


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock. Raises OSError when the file is not a lock of this user."""
    # Not waiting at a FIFO, not following links: the directory may be another user's.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{path} is not a lock file of this user")
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
