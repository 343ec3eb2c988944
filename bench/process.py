"""Processes under measurement: their CPU time and memory, as the kernel counts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).parents[1]
SERVERS = ("kube-apiserver", "etcd")


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Process:
    """A child process."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child = child

    def cpu_seconds(self) -> float:
        """Return user and system time so far."""
        return cpu_seconds(self.child.pid)

    def memory_megabytes(self, kind: str = "VmRSS") -> float:
        """Return resident memory now (VmRSS) or at its peak (VmHWM)."""
        lines = Path(f"/proc/{self.child.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{kind}:"))


@contextmanager
def running(*arguments: str, log: Path, tree: Path | None = None) -> Iterator[Process]:
    """Run a Python program from the root of this or another checkout, and end it."""
    python = sys.executable if tree is None else str(tree / ".venv/bin/python")
    with log.open("wb") as output:
        child = subprocess.Popen(
            [python, *arguments], cwd=tree or ROOT, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield Process(child)
        finally:
            child.terminate()
            child.wait(timeout=20)


class Meter:
    """Processor seconds of this process and of the servers that it started."""

    def __init__(self) -> None:
        self._pids = {"client": os.getpid()} | {name: _child(name) for name in SERVERS}

    def read(self) -> dict[str, float]:
        """Return them by name; this process is the client."""
        return {name: cpu_seconds(pid) for name, pid in self._pids.items()}


def _child(name: str) -> int:
    """Return the process of that name among the descendants of this one."""
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        if Path(f"/proc/{pid}/comm").read_text().startswith(name):
            return pid
        for task in Path(f"/proc/{pid}/task").iterdir():
            waiting += map(int, (task / "children").read_text().split())
    raise SystemExit(f"no {name} was started from here")
