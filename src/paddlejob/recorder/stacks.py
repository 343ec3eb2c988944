"""Lets other processes read the thread stacks of this process.

On a signal, faulthandler writes the stacks to a file in memory. It runs in C without the GIL, so it works
even if the process is blocked or holds the GIL. `kubectl pdj stack` finds the file in /proc by its name,
without a port, a disk or a capability.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
from typing import Any

NAME = "paddlejob-stacks"
SIGNAL = 60
"""A real-time signal, because programs use SIGUSR1 themselves."""
MAX_BYTES = 32768
_LAUNCHERS = (b"paddle.distributed.launch", b"paddle/distributed/launch", b"fleetrun")


def prepare(rank: int) -> None:
    """Register the signal that writes the stacks of all threads to a file in memory."""
    if not hasattr(os, "memfd_create") or signal.getsignal(SIGNAL) != signal.SIG_DFL or is_launcher():
        return
    # The name contains the process ID, because a forked child inherits the file of its parent.
    file = os.memfd_create("%s-%d-%d" % (NAME, os.getpid(), rank))
    # The reader truncates the file first; O_APPEND makes the next dump start at offset 0.
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    faulthandler.register(SIGNAL, file=file, all_threads=True)


def is_launcher() -> bool:
    """Return whether this process is Paddle's launcher, which does not train."""
    with open("/proc/self/cmdline", "rb") as file:
        command = file.read(4096)
    return any(name in command for name in _LAUNCHERS)


def dump() -> str:
    """Return the stacks of all threads: files, lines and functions, without values."""
    with _memory() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        # Keep the end, which has the main thread.
        file.seek(max(0, file.tell() - MAX_BYTES))
        text: str = file.read().decode("utf-8", "replace")
        return text


def _memory() -> Any:
    if hasattr(os, "memfd_create"):
        # Works with a read-only file system.
        return os.fdopen(os.memfd_create("stacks"), "w+b")
    import tempfile  # noqa: PLC0415

    return tempfile.TemporaryFile()
