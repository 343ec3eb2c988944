"""Runs a command that the kernel kills when its parent dies.

    die_with_parent.py PARENT_PID MACHINE_PID COMMAND...

With a MACHINE_PID other than 0 the command runs in the namespaces of that process, see machine.py.

It is a program of its own because the request (PR_SET_PDEATHSIG) must be made between fork and exec, where a
process with threads may not run Python code.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x20000000,
    0x40000000,
)
MACHINE = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Request the signal, then exec the command, or wait for it if it has to be a child."""
    parent, machine, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    die_with_parent()
    # The parent may have died before the request was in place.
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    # Python ignores SIGPIPE, and ignored signals stay ignored across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if machine:
        become_parent_of_what_runs_in(machine)
    os.execv(command[0], command)


def become_parent_of_what_runs_in(machine: int) -> None:
    """Return in a child inside the machine; the process that was called passes on the child's end.

    Only the children of a process can enter another PID namespace, never the process itself.
    """
    directory = os.getcwd()  # noqa: PTH109  (pathlib is slow to import)
    _checked("setns", libc.setns(os.pidfd_open(machine), MACHINE))
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.exit(code if code >= 0 else 128 - code)
    die_with_parent()
    os.chdir(directory)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _checked("prctl", libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0))


def _checked(call: str, result: int) -> None:
    if result != 0:
        sys.exit(f"{call}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
