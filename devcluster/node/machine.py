"""The first process of a node, in new namespaces: `unshare machine.py NAME ADDRESS DIRECTORY KEPT...`.

A node is a machine of its own to the programs on it: it has its own processes, mounts, network and name. All
that exists as long as this process does, so that ending it, however that happens, ends every container and
removes every mount, interface and firewall rule. Files are shared with the host except for the directories
below, which come from DIRECTORY; KEPT paths stay what they are even when they lie in one of these.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

READY = Path("/run/machine-is-ready")
PRIVATE = {"/var/lib": "var-lib", "/var/log": "var-log"}
"""Directories of kubelet, containerd and network plugins, separate from the directories of the host."""
SET_BY_KUBELET = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""Settings of the kernel that a kubelet insists on."""


def main() -> None:
    """Set up the machine and reap orphaned processes."""
    name, address, directory, kept = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    socket.sethostname(name)
    arrange_mounts(directory, kept)
    resolve_own_name(name, address)
    protect_the_kernel()
    allow_forwarding()
    READY.touch()
    while True:
        signal.sigwait({signal.SIGCHLD})
        reap()


def arrange_mounts(directory: Path, kept: list[str]) -> None:
    """Make the mounts, visible to all processes of this machine only."""
    # Opened first: a mount may hide the source of a later one.
    sources = {target: open_directory(directory / name) for target, name in PRIVATE.items()}
    ways_back = {path: os.open(path, os.O_PATH) for path in kept}
    mount("-t", "proc", "proc", "/proc")
    mount("-t", "tmpfs", "tmpfs", "/run")
    for target, handle in sources.items():
        bind(handle, target)
    for path, handle in ways_back.items():
        if not same_place(path, handle):
            Path(path).mkdir(parents=True, exist_ok=True)
            bind(handle, path)
    for handle in (*sources.values(), *ways_back.values()):
        os.close(handle)
    mount("--make-rshared", "/")


def open_directory(path: Path) -> int:
    """Make a directory if there is none, and give a handle of it."""
    path.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_PATH)


def same_place(path: str, handle: int) -> bool:
    """Return whether a path still leads to the same file as before the mounts."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))  # noqa: PTH116
    except FileNotFoundError:
        return False


def bind(handle: int, target: str) -> None:
    """Let a directory appear at another place too."""
    mount("--bind", f"/proc/self/fd/{handle}", target, handles=[handle])


def mount(*arguments: str, handles: Sequence[int] = ()) -> None:
    """Mount something, or fail."""
    subprocess.run(["mount", "--no-mtab", *arguments], check=True, pass_fds=handles)


def resolve_own_name(name: str, address: str) -> None:
    """Let the machine's name mean its address, as gloo needs it; pods in its network inherit the file."""
    hosts = Path("/run/hosts")
    hosts.write_text(f"127.0.0.1 localhost\n{address} {name}\n")
    mount("--bind", str(hosts), "/etc/hosts")


def protect_the_kernel() -> None:
    """Give the kubelet copies of kernel settings that are global to the host."""
    for name in SET_BY_KUBELET:
        copy = Path("/run", name.replace("/", "."))
        copy.write_text(Path("/proc/sys", name).read_text())
        mount("--bind", str(copy), f"/proc/sys/{name}")


def allow_forwarding() -> None:
    """Let packets pass between the pods and the host, and let the firewall see those between pods."""
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    between_pods = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if between_pods.exists():
        between_pods.write_text("1")


def reap() -> None:
    """Take note of every child that has ended."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


if __name__ == "__main__":
    main()
