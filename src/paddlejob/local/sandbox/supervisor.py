"""One process per container, between the runner and the container's init.

It writes the log, forwards commands and sends reports. When the runner ends, even by SIGKILL, the command
pipe closes, and the supervisor kills the container.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import struct
import sys
import time

from paddlejob.local.sandbox import init, kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlejob.local.sandbox.spec import ContainerSpec, Report

PIPE_BYTES = 1 << 20
STAMP_FORMAT = "<dQ"
"""Time of output, and the size of the log at that time."""
STAMP_SECONDS = 0.01
SET_PIPE_SIZE, GET_PIPE_SIZE = 1031, 1032
GATHER_SECONDS = 0.001
"""Delay between reads, so that many small writes are moved together."""
DRAIN_MILLISECONDS = 2000
"""Time to wait for the end of the output after all known processes have died."""


def main(spec_descriptor: int) -> None:
    """Run the container specified in a descriptor. Commands arrive on stdin, reports go to stdout."""
    with open(spec_descriptor, "rb") as reader:
        spec: ContainerSpec = json.load(reader)
    Supervisor(spec).run()


class Supervisor:
    """Runs one start of a container."""

    def __init__(self, spec: ContainerSpec) -> None:
        self._spec = spec
        self._log = Log(spec["log"])
        self._init = 0
        self._exit_code: int | None = None
        self._refusal = ""

    def run(self) -> None:
        """Start the container, wait until it ends, and report its exit code."""
        wakeups = init.listen_for_children()
        try:
            output, commands, reports = self._start_init()
        except OSError as error:
            report({"refused": error.strerror or str(error)})
            return
        self._serve(output, commands, reports, wakeups)
        if self._spec["isolation"] != "full":
            init.kill_descendants()
        self._log.drain(output)
        if self._log.error:
            report({"log_error": self._log.error})
        if self._refusal:
            report({"refused": self._refusal})
        else:
            report({"exited": 128 + signal.SIGKILL if self._exit_code is None else self._exit_code})

    def _start_init(self) -> tuple[int, int, int]:
        output, output_write = os.pipe()
        commands_read, commands = os.pipe()
        reports, reports_write = os.pipe()
        self._log.enlarge_pipe(output)
        isolation = self._spec["isolation"]
        if isolation != "full":
            kernel.adopt_orphans()
        if isolation != "none":
            enter_namespaces(own_processes=isolation == "full")
        self._init = os.fork()
        if self._init == 0:
            for descriptor in (output, commands, reports):
                os.close(descriptor)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            _run_init(init.Init(self._spec, commands_read, reports_write, output_write))
        for descriptor in (output_write, commands_read, reports_write):
            os.close(descriptor)
        return output, commands, reports

    def _serve(self, output: int, commands: int, reports: int, wakeups: int) -> None:
        poll = select.poll()
        for descriptor in (0, output, reports, wakeups):
            poll.register(descriptor, select.POLLIN)
        alive = True
        while alive:
            for descriptor, _ in poll.poll():
                if descriptor == output and not self._log.copy(output):
                    poll.unregister(output)
                elif descriptor == reports and not self._read_reports(os.read(reports, 65536)):
                    poll.unregister(reports)
                elif descriptor == 0 and not self._forward(os.read(0, 1), commands):
                    poll.unregister(0)
                elif descriptor == wakeups:
                    os.read(wakeups, 512)
                    alive = self._init not in [child for child, _ in init.reap_children()]
        os.set_blocking(reports, False)
        try:
            self._read_reports(os.read(reports, 65536))
        except BlockingIOError:
            return

    def _read_reports(self, lines: bytes) -> bool:
        for line in lines.splitlines():
            kind, text = line[:1], line[1:].decode(errors="replace")
            if kind == init.STARTED:
                report({"started": next(iter(init.children_of(self._init)), self._init)})
            elif kind == init.REFUSED:
                self._refusal = text
            else:
                self._exit_code = int(text)
        return bool(lines)

    def _forward(self, command: bytes, commands: int) -> bool:
        """Forward a command to the init. On a kill command, or if the runner died, kill the container."""
        if command == init.TERMINATE:
            os.write(commands, command)
        elif self._spec["isolation"] == "full":
            os.kill(self._init, signal.SIGKILL)
        else:
            os.write(commands, init.KILL)
        return bool(command)


class Log:
    """Writes a container's output to disk."""

    def __init__(self, path: str) -> None:
        # splice does not accept files opened for appending.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.lseek(self._file, 0, os.SEEK_END)
        times = os.path.splitext(path)[0] + ".times"
        self._times = os.open(times, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._may_splice = True
        self._capacity = PIPE_BYTES
        self._stamped = 0.0
        self._unwritten: tuple[float, int] | None = None
        self.error = ""

    def enlarge_pipe(self, output: int) -> None:
        """Enlarge the output pipe, if the user's limit allows it."""
        try:
            self._capacity = fcntl.fcntl(output, SET_PIPE_SIZE, PIPE_BYTES)
        except OSError:
            self._capacity = fcntl.fcntl(output, GET_PIPE_SIZE)

    def copy(self, output: int) -> bool:
        """Move available output to disk. Returns False at the end of the output."""
        copied = self._move(output)
        self._stamp(copied)
        if 0 < copied < self._capacity // 2:
            time.sleep(GATHER_SECONDS)
        return copied > 0

    def _stamp(self, copied: int) -> None:
        """Record the time of output, at most once per STAMP_SECONDS."""
        now = time.time()
        stamps = [self._unwritten] if self._unwritten and now - self._unwritten[0] >= STAMP_SECONDS else []
        self._size += copied
        self._unwritten = (now, self._size)
        if now - self._stamped >= STAMP_SECONDS:
            stamps.append(self._unwritten)
            self._stamped, self._unwritten = now, None
        if stamps:
            try:
                os.write(self._times, b"".join(struct.pack(STAMP_FORMAT, *stamp) for stamp in stamps))
            except OSError:
                # The log is complete even without times.
                return

    def drain(self, output: int) -> None:
        """Copy the remaining output."""
        poll = select.poll()
        poll.register(output, select.POLLIN)
        while poll.poll(DRAIN_MILLISECONDS):
            if not self.copy(output):
                return

    def _move(self, output: int) -> int:
        if self._may_splice and not self.error:
            try:
                return os.splice(output, self._file, self._capacity)
            except OSError:
                # Some file systems do not support splice; a full disk fails again below.
                self._may_splice = False
        chunk = os.read(output, self._capacity)
        self._write(chunk)
        return len(chunk)

    def _write(self, chunk: bytes) -> None:
        """Write to the log. After an error, such as a full disk, output is dropped and training continues."""
        view = memoryview(chunk)
        try:
            while view and not self.error:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self.error = f"the log ends here: {error.strerror}"


def enter_namespaces(*, own_processes: bool) -> None:
    """Create namespaces for the next child; without root, in a user namespace that maps the user to itself.

    Raises OSError if the kernel does not allow it.
    """
    flags = kernel.NEW_PIDS if own_processes else 0
    user, group = os.geteuid(), os.getegid()
    if may_mount():
        if flags:
            kernel.unshare(flags)
        return
    kernel.unshare(flags | kernel.NEW_USER)
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as mapping:
            mapping.write(line)


def may_mount() -> bool:
    """Return whether this process has CAP_SYS_ADMIN in its namespaces."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> 21 & 1)


def report(message: Report) -> None:
    """Send a report to the runner, unless it has ended."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        return


def _run_init(process: init.Init) -> None:
    try:
        process.run()
    except BaseException as error:  # noqa: BLE001 - report the error and exit
        sys.stderr.write(f"container init: {error!r}\n")
        sys.stderr.flush()
    finally:
        os._exit(0)
