"""Ends a process together with its parent, however the parent ended.

Standard library only: the sandbox of a local run imports it in a process without site-packages.
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends. Raises OSError.

    Given the parent's process ID, ends at once if the parent ended before the kernel was told.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if parent is not None and os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)
