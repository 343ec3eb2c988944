"""Child processes that never outlive their starter, and records that find them after a crash."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from devcluster.cache import write_atomically

LAUNCHER = Path(__file__).with_name("die_with_parent.py")
ENDED_STATES = ("Z", "X")
POLL_SECONDS = 0.01
PROCESS_RECORDS = "processes.json"
"""In a cluster's directory: the components that run."""
ADMINISTRATION = "/usr/local/sbin:/usr/sbin:/sbin"
"""Directories of programs like iptables, which the PATH of many accounts lacks."""


def boot_id() -> str:
    """Identify this boot of the machine: process start times count from it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def parse_stat(text: str) -> tuple[str, int]:
    """Read state and start time (clock ticks since boot) from /proc/PID/stat."""
    # The command's name is in parentheses and may itself hold spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _stat(pid: int) -> tuple[str, int] | None:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


@dataclass(frozen=True)
class Record:
    """A process that was started; its start time shows that the PID was not reused."""

    name: str
    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, name: str, pid: int) -> Record:
        """Record a process that runs, or that has ended and was not yet reaped.

        Raises: ProcessLookupError when there is no such process.
        """
        found = _stat(pid)
        if found is None:
            raise ProcessLookupError(f"{name} (pid {pid}) has ended")
        return cls(name, pid, found[1], boot_id())

    def alive(self) -> bool:
        """Return whether this process still runs."""
        found = _stat(self.pid)
        if found is None or self.boot_id != boot_id():
            return False
        state, ticks = found
        return ticks == self.start_ticks and state not in ENDED_STATES

    def resident_bytes(self) -> int:
        """Give the memory the process occupies now, 0 when it is gone."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open(self) -> int | None:
        """Give a pidfd of this very process, None when it has ended; the caller closes it."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        # The check comes after the handle: from here on the number cannot pass to another process.
        if self.alive():
            return handle
        os.close(handle)
        return None

    def end(self, *, grace_seconds: float = 0.0) -> bool:
        """End the process and wait until it has ended; with a grace it is first asked, then killed.

        Guarantees: no other process is ever signalled. Gives False when there was nothing to end.
        """
        handle = self.open()
        if handle is None:
            return False
        try:
            if grace_seconds > 0:
                signal.pidfd_send_signal(handle, signal.SIGTERM)
            if grace_seconds <= 0 or not ended(handle, grace_seconds):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                ended(handle, None)
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)
        return True


def ended(handle: int, timeout_seconds: float | None) -> bool:
    """Wait until the process behind a pidfd has ended; False when the time is up first."""
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(None if timeout_seconds is None else timeout_seconds * 1000))


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Keep records in a file."""
    write_atomically(path, json.dumps([asdict(record) for record in records], indent=1) + "\n")


def read_records(path: Path) -> list[Record]:
    """Give the records of a file, none when there is no file."""
    try:
        return [Record(**entry) for entry in json.loads(path.read_text())]
    except FileNotFoundError:
        return []


class _Spawner:
    """The one thread that starts children.

    The kernel ties PR_SET_PDEATHSIG to the thread that forked, not to its process: a child started by a
    short-lived thread would die with that thread. This one lives as long as the process.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._thread: ThreadPoolExecutor | None = None

    def popen(self, command: list[str], log: Path, directory: Path, machine: int) -> subprocess.Popen[bytes]:
        if self._thread is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="devcluster-spawner")
        return self._thread.submit(_popen, command, log, directory, machine).result()


def _popen(command: list[str], log: Path, directory: Path, machine: int) -> subprocess.Popen[bytes]:
    launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(machine)]
    with log.open("ab") as sink:
        return subprocess.Popen(
            [*launcher, *command],
            cwd=directory,
            env=_environment(directory),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            # A Ctrl-C in the terminal is for the starter, which then ends its children in order.
            start_new_session=True,
        )


_spawner = _Spawner()


class Child:
    """A running program with its log.

    What a `waited` program starts as its one child is what counts: that child is recorded and signalled, and
    both end together. With a machine, the program runs in the namespaces of that process.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        *,
        log: Path,
        directory: Path,
        machine: int = 0,
        waited: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self._process = _spawner.popen(command, log, directory, machine)
        self.record = Record.of(name, self._process.pid)
        if machine or waited:
            self.record = self._only_child() or self.record

    def _only_child(self) -> Record | None:
        """Give the child of the process that was started, None when it ends without one."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        while self.running():
            with suppress(FileNotFoundError, ProcessLookupError):
                for pid in children.read_text().split():
                    return Record.of(self.name, int(pid))
            time.sleep(POLL_SECONDS)
        return None

    def running(self) -> bool:
        """Return whether it still runs."""
        return self._process.poll() is None

    def exit_code(self) -> int | None:
        """Give its exit code once it has ended."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        handle = self.record.open()
        if handle is not None:
            try:
                signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)

    def kill(self) -> None:
        """Kill it and reap it."""
        self.send(signal.SIGKILL)
        self._process.wait()

    def log_tail(self, lines: int = 20) -> str:
        """Give the last lines of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""


def _environment(home: Path) -> dict[str, str]:
    """Return a minimal environment: ETCD_ and KUBE variables of the caller must not configure a child."""
    path = f"{os.environ.get('PATH', os.defpath)}:{ADMINISTRATION}"
    return {"PATH": path, "HOME": str(home), "TMPDIR": str(home)}
