"""Kills a process when its parent ends for any reason.

Standard library only: the sandbox of a local run imports it in a process without site-packages.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int | None = None) -> None:
    """Make the kernel kill this process when its parent ends. Raises OSError.

    With the parent's process ID, exit immediately if the parent ended before this call.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if parent is not None and os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)
