"""Reads from /proc how this process was started, and the processes that it has started."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Dict, List


def command() -> List[bytes]:
    """Return the command line that started this process."""
    return read("/proc/self/cmdline").split(b"\0")[:-1]


def executable() -> str:
    """Return the interpreter under the name by which it was started, which `ps` shows."""
    if sys.executable and os.path.samefile(sys.executable, "/proc/self/exe"):
        return sys.executable
    return os.readlink("/proc/self/exe")


def descendants(besides: int) -> List[int]:
    """Return all processes that this one or its descendants started, besides one child and its descendants.

    Processes of `kubectl exec` have a parent outside of the container.
    """
    children: Dict[int, List[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            # The name of the program, in parentheses, may contain anything.
            parent = int(read("/proc/%s/stat" % name).rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    found, unseen = [], [os.getpid()]
    while unseen:
        more = [pid for pid in children.get(unseen.pop(), ()) if pid != besides]
        found += more
        unseen += more
    return found


def handles(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal, or blocks it and may wait for it."""
    with suppress(OSError):
        lines = read("/proc/%d/status" % pid).splitlines()
        masks = [int(line.split()[1], 16) for line in lines if line.startswith((b"SigCgt:", b"SigBlk:"))]
        return any(mask >> (number - 1) & 1 for mask in masks)
    return False


def environment() -> Dict[bytes, bytes]:
    """Return the variables that this process was started with; Python itself has changed some since."""
    pairs = (part.partition(b"=") for part in read("/proc/self/environ").split(b"\0") if b"=" in part)
    environment: Dict[bytes, bytes] = {}
    for name, _, value in pairs:
        environment.setdefault(name, value)
    return environment


def read(path: str) -> bytes:
    """Return the content of a file."""
    with open(path, "rb") as file:
        return file.read()
