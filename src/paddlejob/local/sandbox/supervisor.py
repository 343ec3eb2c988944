"""One process per container, between the runner and the container's init.

It keeps the log, passes commands on and reports. When the runner is gone, in whatever way, its end of the
command pipe closes, and the supervisor ends the container.
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
"""When output was written, and the size that the log had then."""
STAMP_SECONDS = 0.01
SET_PIPE_SIZE, GET_PIPE_SIZE = 1031, 1032
GATHER_SECONDS = 0.001
"""How long output gathers in the pipe before it is moved on: programs write in small pieces, and many."""
LAST_OUTPUT_MILLISECONDS = 2000
"""How long to wait for the end of the output once every known process is dead."""


def main(spec_descriptor: int) -> None:
    """Run the container that the descriptor describes; commands come on stdin, reports go to stdout."""
    with open(spec_descriptor, "rb") as reader:
        spec: ContainerSpec = json.load(reader)
    Supervisor(spec).run()


class Supervisor:
    """Runs one container once."""

    def __init__(self, spec: ContainerSpec) -> None:
        self._spec = spec
        self._log = Log(spec["log"])
        self._init = 0
        self._exit_code: int | None = None
        self._refusal = ""

    def run(self) -> None:
        """Start the container, serve it to its end, report."""
        wakeups = init.listen_for_children()
        try:
            output, commands, reports = self._start_init()
        except OSError as error:
            report({"refused": error.strerror or str(error)})
            return
        self._serve(output, commands, reports, wakeups)
        if self._spec["isolation"] != "full":
            init.kill_descendants()
        self._log.drain(output, LAST_OUTPUT_MILLISECONDS)
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
        self._log.adopt(output)
        isolation = self._spec["isolation"]
        if isolation != "full":
            kernel.adopt_orphans()
        if isolation != "none":
            leave_namespaces(own_processes=isolation == "full")
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
                elif descriptor == 0 and not self._pass_on(os.read(0, 1), commands):
                    poll.unregister(0)
                elif descriptor == wakeups:
                    os.read(wakeups, 512)
                    alive = self._init not in [child for child, _ in init.dead_children()]
        self._read_last_reports(reports)

    def _read_last_reports(self, reports: int) -> None:
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

    def _pass_on(self, command: bytes, commands: int) -> bool:
        """Pass an order to the init; a kill, and the runner's death, need no consent."""
        if command == init.TERMINATE:
            os.write(commands, command)
        elif self._spec["isolation"] == "full":
            os.kill(self._init, signal.SIGKILL)
        else:
            os.write(commands, init.KILL)
        return bool(command)


class Log:
    """A container's output on disk."""

    def __init__(self, path: str) -> None:
        # Not opened for appending, which splice refuses: this is the only writer.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.lseek(self._file, 0, os.SEEK_END)
        times = os.path.splitext(path)[0] + ".times"
        self._times = os.open(times, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._may_splice = True
        self._capacity = PIPE_BYTES
        self._stamped = 0.0
        self._unwritten: tuple[float, int] | None = None
        self.error = ""

    def adopt(self, output: int) -> None:
        """Enlarge the pipe that the log comes through, as far as this user may."""
        try:
            self._capacity = fcntl.fcntl(output, SET_PIPE_SIZE, PIPE_BYTES)
        except OSError:
            self._capacity = fcntl.fcntl(output, GET_PIPE_SIZE)

    def copy(self, output: int) -> bool:
        """Move what is there to the disk; False at the end of the output."""
        copied = self._move(output)
        self._stamp(copied)
        if 0 < copied < self._capacity // 2:
            time.sleep(GATHER_SECONDS)
        return copied > 0

    def _stamp(self, copied: int) -> None:
        """Note when output came; of output that comes all the time, not more often than is of use."""
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
                # Without times the log is still complete.
                return

    def drain(self, output: int, patience_milliseconds: int) -> None:
        """Copy the rest."""
        poll = select.poll()
        poll.register(output, select.POLLIN)
        while poll.poll(patience_milliseconds):
            if not self.copy(output):
                return

    def _move(self, output: int) -> int:
        if self._may_splice and not self.error:
            try:
                return os.splice(output, self._file, self._capacity)
            except OSError:
                # Some file systems cannot; a full disk shows itself again below.
                self._may_splice = False
        chunk = os.read(output, self._capacity)
        self._write(chunk)
        return len(chunk)

    def _write(self, chunk: bytes) -> None:
        """Write, or go on without a log: a full disk must not stop the training."""
        view = memoryview(chunk)
        try:
            while view and not self.error:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self.error = f"the log ends here: {error.strerror}"


def leave_namespaces(*, own_processes: bool) -> None:
    """Prepare namespaces for the next child; without root, in a user namespace in which we stay who we are.

    Raises OSError where the kernel does not allow it.
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
    """Whether this process is an administrator of the namespaces it is in (CAP_SYS_ADMIN)."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> 21 & 1)


def report(message: Report) -> None:
    """Tell the runner; that it is gone is no reason to fail."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        return


def _run_init(process: init.Init) -> None:
    try:
        process.run()
    except BaseException as error:  # noqa: BLE001 - the last resort of a process: tell and end
        sys.stderr.write(f"container init: {error!r}\n")
        sys.stderr.flush()
    finally:
        os._exit(0)
