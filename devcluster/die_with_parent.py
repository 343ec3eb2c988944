"""Runs a command that the kernel kills when its parent dies: `die_with_parent.py PARENT_PID COMMAND...`.

It is a program of its own because the request (PR_SET_PDEATHSIG) must be made between fork and exec, where a
process with threads may not run Python code.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before the request was in place.
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    # Python ignores SIGPIPE, and what is ignored stays ignored across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
