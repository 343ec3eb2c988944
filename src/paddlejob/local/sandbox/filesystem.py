"""Builds the file system of a container: this machine's, with volumes at their paths.

A mount point that does not exist must not be created on the real disk. Its parent directory is replaced,
in this mount namespace only, by a tmpfs into which all existing entries are bind-mounted.
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
BASE = "/tmp"  # noqa: S108 - a temporary mount point, invisible to other processes


def enter(mounts: Sequence[Mount], *, fresh_proc: bool) -> None:
    """Set up the mounts in a new mount namespace. Paths of sources must not contain symbolic links."""
    kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    builder = FilesystemBuilder()
    ordered = sorted(mounts, key=lambda each: each["target"].rstrip("/").count("/"))
    if not all(os.path.exists(each["target"]) for each in ordered):
        builder.replace_root()
    # A mount may hide the source of another one, so all sources are opened first.
    sources = [builder.open_source(each) for each in ordered]
    for each, source in zip(ordered, sources, strict=True):
        builder.add(each, source)
        os.close(source)
    if fresh_proc:
        kernel.mount("proc", "/proc", "proc")
    builder.close()


class FilesystemBuilder:
    """Adds mounts without changing the real disk."""

    def __init__(self) -> None:
        self._old_root = ""
        self._tmpfs_devices: set[int] = set()
        self._targets: list[str] = []

    def replace_root(self) -> None:
        """Replace the root by a tmpfs that shows all entries of the old root.

        The old root stays reachable until `close`, because it contains the sources of the mounts.
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
        self._tmpfs_devices.add(os.stat("/").st_dev)

    def open_source(self, each: Mount) -> int:
        """Return a descriptor of the source of a mount; for an overlay, of its upper directory."""
        path = each["source"] if each["kind"] == "bind" else each["upper"]
        return os.open(self._old_root + path, os.O_PATH)

    def add(self, each: Mount, source: int) -> None:
        """Add one mount."""
        target = os.path.realpath(each["target"])
        if each["kind"] == "overlay":
            self._make_mount_point(target, is_directory=True)
            _overlay(each, target, self._old_root)
        else:
            self._make_mount_point(target, is_directory=stat.S_ISDIR(os.fstat(source).st_mode))
            _bind(each, source, target)
        self._targets.append(target)

    def close(self) -> None:
        """Unmount the old root."""
        if self._old_root:
            kernel.detach(BEFORE)
            os.rmdir(BEFORE)

    def _make_mount_point(self, target: str, *, is_directory: bool) -> None:
        if os.path.lexists(target):
            return
        parent = os.path.dirname(target)
        self._make_mount_point(parent, is_directory=True)
        if not self._is_private(parent):
            self._tmpfs_devices.add(_replace_directory(parent))
        if is_directory:
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))

    def _is_private(self, directory: str) -> bool:
        """Return whether a directory is in a tmpfs of ours or in a volume, so that it may be changed."""
        inside = (directory == each or directory.startswith(f"{each}/") for each in self._targets)
        return os.stat(directory).st_dev in self._tmpfs_devices or any(inside)


def _replace_directory(directory: str) -> int:
    """Mount a tmpfs with the same entries over a directory. Returns its device."""
    os.mkdir(STAGING)
    kernel.mount("tmpfs", STAGING, "tmpfs", options="mode=755")
    device = os.stat(STAGING).st_dev
    _mirror(directory, STAGING)
    kernel.mount(STAGING, directory, flags=kernel.MOVE)
    os.rmdir(STAGING)
    return device


def _mirror(source: str, target: str) -> None:
    """Bind-mount every entry of a directory into another one."""
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
        # An unprivileged namespace must repeat these flags.
        kept = os.statvfs(target).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
        kernel.mount("none", target, flags=kernel.BIND | kernel.REMOUNT | kernel.READ_ONLY | kept)


def _overlay(each: Overlay, target: str, root: str) -> None:
    lower = ":".join(_escape(root + path) for path in each["lower"])
    upper, work = _escape(root + each["upper"]), _escape(root + each["work"])
    kernel.mount("overlay", target, "overlay", options=f"lowerdir={lower},upperdir={upper},workdir={work}")


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
