"""Builds the file system that a container sees: this machine's, with volumes at their paths.

A path that does not exist here cannot be mounted upon, and must not be made on the real disk. So the
directory that lacks it is replaced, in this mount namespace only, by an empty one in memory into which
everything that was there is bound again.
"""

from __future__ import annotations

import os
import stat

from paddlejob.local.sandbox import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddlejob.local.sandbox.spec import Bind, Mount, Overlay

STAGING = "/.paddlejob-staging"
BEFORE = "/.paddlejob-before"
BASE = "/tmp"  # noqa: S108 - only a place to mount upon for a moment, invisible to others


def enter(mounts: Sequence[Mount], *, fresh_proc: bool) -> None:
    """Move this process into a view of its own with the mounts in it.

    Assumes a fresh mount namespace, and sources without symbolic links in their paths.
    """
    kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    view = View()
    ordered = sorted(mounts, key=lambda each: each["target"].rstrip("/").count("/"))
    if not all(os.path.exists(each["target"]) for each in ordered):
        view.replace_root()
    # A mount may cover another one's source, so all sources are opened before the first mount.
    sources = [view.open_source(each) for each in ordered]
    for each, source in zip(ordered, sources, strict=True):
        view.add(each, source)
        os.close(source)
    if fresh_proc:
        kernel.mount("proc", "/proc", "proc")
    view.close()


class View:
    """The file system while it is being built."""

    def __init__(self) -> None:
        self._old_root = ""
        self._own_devices: set[int] = set()
        self._targets: list[str] = []

    def replace_root(self) -> None:
        """Make the root a directory in memory with all that was there.

        The old root stays reachable until `close`, because it holds the sources of the mounts.
        """
        kernel.mount("tmpfs", BASE, "tmpfs", options="mode=755")
        os.mkdir(f"{BASE}/old")
        os.mkdir(f"{BASE}/new")
        kernel.pivot_root(BASE, f"{BASE}/old")
        os.chdir("/")
        kernel.mount("tmpfs", "/new", "tmpfs", options="mode=755")
        _mirror("/old", "/new")
        os.mkdir(f"/new{BEFORE}")
        kernel.pivot_root("/new", f"/new{BEFORE}")
        os.chdir("/")
        self._old_root = f"{BEFORE}/old"
        self._own_devices.add(os.stat("/").st_dev)

    def open_source(self, each: Mount) -> int:
        """Return a descriptor of what a mount shows; of an overlay, its upper directory."""
        path = each["source"] if each["kind"] == "bind" else each["upper"]
        return os.open(self._old_root + path, os.O_PATH)

    def add(self, each: Mount, source: int) -> None:
        """Put one mount into its place."""
        target = os.path.realpath(each["target"])
        if each["kind"] == "overlay":
            self._make_place(target, is_directory=True)
            _overlay(each, target, self._old_root)
        else:
            self._make_place(target, is_directory=stat.S_ISDIR(os.fstat(source).st_mode))
            _bind(each, source, target)
        self._targets.append(target)

    def close(self) -> None:
        """Forget the old root."""
        if self._old_root:
            kernel.detach(BEFORE)
            os.rmdir(BEFORE)

    def _make_place(self, target: str, *, is_directory: bool) -> None:
        if os.path.lexists(target):
            return
        parent = os.path.dirname(target)
        self._make_place(parent, is_directory=True)
        if not self._may_write(parent):
            self._own_devices.add(_replace_directory(parent))
        if is_directory:
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))

    def _may_write(self, directory: str) -> bool:
        """Whether a directory is in memory or in a volume, so that nobody's disk is changed."""
        inside = (directory == each or directory.startswith(f"{each}/") for each in self._targets)
        return os.stat(directory).st_dev in self._own_devices or any(inside)


def _replace_directory(directory: str) -> int:
    """Put a directory in memory over one on disk, with the same entries; return its device."""
    os.mkdir(STAGING)
    kernel.mount("tmpfs", STAGING, "tmpfs", options="mode=755")
    device = os.stat(STAGING).st_dev
    _mirror(directory, STAGING)
    kernel.mount(STAGING, directory, flags=kernel.MOVE)
    os.rmdir(STAGING)
    return device


def _mirror(source: str, target: str) -> None:
    """Bind every entry of a directory into another one."""
    with os.scandir(source) as entries:
        for entry in entries:
            place = f"{target}/{entry.name}"
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), place)
                continue
            if entry.is_dir():
                os.mkdir(place)
            else:
                os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
            kernel.mount(entry.path, place, flags=kernel.BIND | kernel.RECURSIVE)


def _bind(each: Bind, source: int, target: str) -> None:
    kernel.mount(f"/proc/self/fd/{source}", target, flags=kernel.BIND | kernel.RECURSIVE)
    if each["read_only"]:
        # Flags that a less privileged namespace may not drop must be repeated.
        kept = os.statvfs(target).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
        kernel.mount("none", target, flags=kernel.BIND | kernel.REMOUNT | kernel.READ_ONLY | kept)


def _overlay(each: Overlay, target: str, root: str) -> None:
    lower = ":".join(_escaped(root + path) for path in each["lower"])
    upper, work = _escaped(root + each["upper"]), _escaped(root + each["work"])
    kernel.mount("overlay", target, "overlay", options=f"lowerdir={lower},upperdir={upper},workdir={work}")


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
