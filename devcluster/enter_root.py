"""Runs a command in another root file system: `enter_root.py ROOT UID COMMAND [PATH...]`, in new namespaces.

Devices and the given files of this machine are visible there. It changes the root of the mount namespace and
not only that of the process (chroot): the kernel gives no namespaces to a process whose root is another one.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Make the mounts, enter the root, and exec the command."""
    root, uid, command, *paths = sys.argv[1:]
    mount("--bind", root, root)
    mount("-t", "proc", "proc", f"{root}/proc")
    for path in ("/dev", "/sys", *paths):
        make_mount_point(Path(path), Path(root + path))
        mount("--rbind", path, root + path)
    os.chdir(root)
    # The old root is mounted over the new one, then unmounted.
    checked("pivot_root", libc.pivot_root(b".", b"."))
    checked("umount", libc.umount2(b".", DETACH))
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    os.execvp("bash", ["bash", "-c", command])


def make_mount_point(source: Path, place: Path) -> None:
    """Make the directory or the empty file that something is mounted on."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        place.mkdir(exist_ok=True)
    else:
        place.touch()


def mount(*arguments: str) -> None:
    """Mount something, or fail."""
    subprocess.run(["mount", "--no-mtab", *arguments], check=True)


def checked(call: str, result: int) -> None:
    """Fail with the reason of a system call that failed."""
    if result != 0:
        sys.exit(f"{call}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
