"""Where the threads of this process are, for those who ask from outside.

A file in memory takes what faulthandler writes on a signal: in C and without Python's lock, so also while the
process waits forever, or holds that lock. `kubectl pdj stack` finds the file in /proc by its name; no port,
no disk and no capability is needed.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
from typing import Any

NAME = "paddlejob-stacks"
SIGNAL = 60
"""A real-time signal: programs have their own uses for SIGUSR1."""
MOST_BYTES = 32768
_LAUNCHERS = (b"paddle.distributed.launch", b"paddle/distributed/launch", b"fleetrun")


def prepare(rank: int) -> None:
    """Write the stacks of all threads to a file in memory whenever the signal comes."""
    if not hasattr(os, "memfd_create") or signal.getsignal(SIGNAL) != signal.SIG_DFL or _is_launcher():
        return
    # Its name tells whose it is: a forked child has the file of its parent.
    file = os.memfd_create("%s-%d-%d" % (NAME, os.getpid(), rank))
    # Whoever asks empties it first, and what is written then is to begin there.
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    faulthandler.register(SIGNAL, file=file, all_threads=True)


def _is_launcher() -> bool:
    """Tell whether this process only starts those that train."""
    with open("/proc/self/cmdline", "rb") as file:
        command = file.read(4096)
    return any(name in command for name in _LAUNCHERS)


def dump() -> str:
    """Return where every thread of this process is: files, lines and functions, and no values."""
    with _memory() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        # The main thread comes last, and is what is asked for.
        file.seek(max(0, file.tell() - MOST_BYTES))
        text: str = file.read().decode("utf-8", "replace")
        return text


def _memory() -> Any:
    if hasattr(os, "memfd_create"):
        # Also where every disk is read-only.
        return os.fdopen(os.memfd_create("stacks"), "w+b")
    import tempfile  # noqa: PLC0415

    return tempfile.TemporaryFile()
