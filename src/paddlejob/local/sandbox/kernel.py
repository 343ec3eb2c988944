"""System calls missing from Python's os module."""

from __future__ import annotations

import ctypes
import os

NEW_MOUNTS = 0x00020000
NEW_HOSTNAME = 0x04000000
NEW_USER = 0x10000000
NEW_PIDS = 0x20000000

READ_ONLY = 1
REMOUNT = 32
BIND = 4096
MOVE = 8192
RECURSIVE = 16384
PRIVATE = 1 << 18
DETACH = 2

_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


def unshare(flags: int) -> None:
    """Enter new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    arguments = [os.fsencode(text) for text in (source, target, kind)]
    _check(_libc.mount(*arguments, flags, os.fsencode(options)), f"mount {source} at {target}")


def detach(target: str) -> None:
    """Unmount a file system and everything below it lazily."""
    _check(_libc.umount2(os.fsencode(target), DETACH), f"unmount {target}")


def pivot_root(new_root: str, old_root: str) -> None:
    """Make a mount the root, and move the old root to a directory below it."""
    result = _libc.pivot_root(os.fsencode(new_root), os.fsencode(old_root))
    _check(result, f"change the root to {new_root}")


def set_hostname(name: str) -> None:
    """Set the host name of this UTS namespace."""
    encoded = os.fsencode(name)
    _check(_libc.sethostname(encoded, len(encoded)), f"set the hostname {name}")


def adopt_orphans() -> None:
    """Become the subreaper: orphaned descendants get this process as their parent."""
    _check(_libc.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
