"""PID 1 of a training container: runs the user's program as its child, once for each attempt.

The recorder's sitecustomize calls `supervise` before any other code of the program. This process stays behind
as PID 1, and a child executes the same command again. If the program fails, PID 1 ends everything that the
program has started, reports to the operator, and waits for the order to run it again. If no answer comes it
exits with the program's code, so that the pod ends as it does without a supervisor.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from typing import Any, Dict, List

from . import leftovers, processes, stacks
from .attend import ANSWER_SECONDS, Attend
from .parked import PARK_SECONDS, PARKED, Parked
from .repeatable import KEEP_ENV, can_run_again

ATTEND_URL = "PADDLEJOB_ATTEND_URL"
ATTEMPT = "PADDLEJOB_ATTEMPT"
PATIENCE_SECONDS = 30.0
"""Time without an answer after which a program that is down is given up."""
KILL_SECONDS = 0.01
NOT_PASSED = (
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ),
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP),
)
"""Signals that cannot be caught, and those that are about PID 1 itself."""
ENDS = (signal.SIGTERM, signal.SIGINT)
RUNNING, ENDING, DOWN = "running", "ending", "down"


def supervise(directory: str) -> None:
    """Stay as PID 1 and never return; return in a process that has to run the program itself."""
    # All of this is read before the fork, so that an error leaves the program alone.
    command, environment = processes.command(), processes.environment()
    if can_run_again(command, environment):
        _Supervisor(directory, command, environment).run()


class _Supervisor:
    def __init__(self, directory: str, command: List[bytes], environment: Dict[bytes, bytes]) -> None:
        self._command = command
        self._executable = processes.executable()
        # The program does not get the address: its processes that are PID 1 of a sandbox must not supervise.
        url = environment.pop(ATTEND_URL.encode())
        self._environment = environment
        self._line = Attend(os.fsdecode(url), directory)
        self._attempt = int(environment.get(ATTEMPT.encode(), b"0"))
        self._program = 0
        self._state = DOWN
        # Until the program has run: a container that has to end before that.
        self._code = 128 + signal.SIGTERM
        self._since = time.monotonic()
        self._ended_at = 0.0
        self._is_told_to_end = False
        self._is_oom = False
        self._kept_files = leftovers.files()
        self._modes = leftovers.modes()
        self._oom_kills = leftovers.oom_kills()
        self._parked = Parked()
        self._parks = environment.get(PARKED.encode()) == b"1" and not stacks.is_launcher()
        self._has_parked = False
        self._were_left = True
        self._caught = sorted(signal.valid_signals() - set(NOT_PASSED))
        self._before: Dict[int, Any] = {}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._woken, self._wake = os.pipe()

    def run(self) -> None:
        """Return only in a child that could not execute the command; raise if there is no child."""
        self._catch_signals()
        try:
            is_program = self._start()
        except OSError:
            self._release_signals()
            raise
        while not is_program:
            try:
                is_program = self._turn()
            except Exception as error:
                self._outlast(error)

    def _outlast(self, error: Exception) -> None:
        """Exit as the program does, without the operator."""
        os.write(2, ("paddlejob supervisor is off: %s: %s\n" % (type(error).__name__, error)).encode())
        while self._state == RUNNING:
            self._wait([], [], 1.0)
            self._reap()
        os._exit(self._code)

    # --- signals

    def _catch_signals(self) -> None:
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        for number in (*self._caught, signal.SIGCHLD):
            self._before[number] = signal.signal(number, self._handle)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def _release_signals(self) -> None:
        """Make this process again what it was."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(self._woken)
        os.close(self._wake)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _handle(self, number: int, _: object) -> None:
        if number == signal.SIGCHLD:
            return
        if number in ENDS:
            self._is_told_to_end = True
            if self._state != RUNNING:
                os._exit(self._code)
        # As PID 1 the program would not see a signal that it does not handle.
        if number in ENDS or processes.handles(self._program, number):
            with suppress(ProcessLookupError):
                os.kill(self._program, number)

    # --- the program

    def _start(self) -> bool:
        """Start the program; return True in a child that has to be the program itself."""
        program = self._parked.take(self._environment) or self._fork(self._environment)
        if program:
            self._program, self._state, self._since = program, RUNNING, time.monotonic()
            self._is_oom = self._has_parked = False
            self._line.withdraw()
        return not program

    def _fork(self, environment: Dict[bytes, bytes]) -> int:
        """Execute the command in a child; return 0 in a child in which that failed."""
        # A signal between the fork and the next lines would reach the wrong process, or none.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid:
                signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if not pid:
            with suppress(Exception):
                self._execute(environment)
        return pid

    def _execute(self, environment: Dict[bytes, bytes]) -> None:
        """Execute the command: a fresh interpreter has no trace of this process. Return if that fails."""
        os.environ.update({os.fsdecode(name): os.fsdecode(text) for name, text in environment.items()})
        os.environ.pop(ATTEND_URL, None)
        self._line.close()
        self._release_signals()
        if os.getsid(0) == os.getppid():
            # PID 1 of a container leads a session and a process group.
            os.setsid()
        os.execve(self._executable, self._command, environment)  # noqa: S606

    def _is_time_to_park(self) -> bool:
        is_due = time.monotonic() - self._since > PARK_SECONDS
        return self._parks and self._state == RUNNING and not self._has_parked and is_due

    def _park(self) -> None:
        """Start a process that waits for the next attempt, once for each attempt."""
        self._has_parked = True
        environment = self._parked.prepare(self._environment)
        try:
            pid = self._fork(environment)
        except OSError:
            # Too many processes: the next program imports Paddle itself.
            self._parked.abandon()
            return
        if not pid:
            os._exit(1)
        self._parked.begin(pid)

    def _reap(self) -> bool:
        """Reap all children that have ended, also orphans of the program; return whether others are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self._program and self._state == RUNNING:
                self._ended(status)
            elif pid == self._parked.pid:
                self._parked.end()

    def _ended(self, status: int) -> None:
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self._code = 128 + killed if killed else os.WEXITSTATUS(status)
        if self._code == 0 or self._is_told_to_end:
            os._exit(self._code)
        self._ended_at = time.monotonic()
        self._state, self._since, self._were_left = ENDING, self._ended_at, True
        self._is_oom = killed == signal.SIGKILL and leftovers.oom_kills() > self._oom_kills

    def _kill(self) -> bool:
        """Kill all processes of the program; return whether there were any."""
        found = processes.descendants(besides=self._parked.pid)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(found)

    def _end(self) -> None:
        """Kill until nothing is left, however long a process waits for a device; then the program is down."""
        are_left = self._kill()
        # A process whose parent is gone is a child of PID 1. So without a child there is no process at all.
        # A list of /proc, which takes a while to read, may miss one; it hardly misses the same one twice.
        has_children = self._reap()
        if not has_children or (self._parked.pid and not are_left and not self._were_left):
            leftovers.remove_files(self._kept_files)
            leftovers.restore_modes(self._modes)
            self._state, self._since = DOWN, time.monotonic()
            self._line.withdraw()
        self._were_left = are_left

    # --- orders

    def _turn(self) -> bool:
        """Wait for an event and handle it; return True in a child that has to be the program itself."""
        reads, writes = self._line.fds
        running = 1.0 if self._parks else ANSWER_SECONDS
        longest = {RUNNING: running, ENDING: KILL_SECONDS, DOWN: 1.0}[self._state]
        timeout = min(longest, self._line.seconds())
        self._wait(reads, writes, timeout)
        self._reap()
        if self._state == ENDING:
            self._end()
        elif self._is_time_to_park():
            self._park()
        order = self._line.advance(self._report())
        waited = time.monotonic() - max(self._since, self._line.answered_at)
        if self._state != RUNNING and waited > PATIENCE_SECONDS:
            os._exit(self._code)
        return order is not None and self._obey(order)

    def _wait(self, reads: List[int], writes: List[int], timeout: float) -> None:
        select.select([self._woken, *reads], writes, [], timeout)
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def _report(self) -> Dict[str, Any]:
        if self._state != DOWN:
            return {"attempt": self._attempt, "state": RUNNING}
        seconds = round(time.monotonic() - self._ended_at, 3)
        report = {"attempt": self._attempt, "state": DOWN, "code": self._code, "endedSeconds": seconds}
        return {**report, "oomKilled": True} if self._is_oom else report

    def _obey(self, order: Dict[str, Any]) -> bool:
        """Follow an order, unless it is about another attempt; return True in a child, as `_start` does."""
        if self._state == RUNNING and order.get("stop") == self._attempt:
            self._oom_kills = leftovers.oom_kills()
            self._kill()
        elif self._state == DOWN and order.get("exit"):
            os._exit(self._code)
        elif self._state == DOWN and order.get("run", -1) > self._attempt:
            self._attempt = order["run"]
            kept = self._environment.get(KEEP_ENV.encode(), b"").split(b",")
            new = {os.fsencode(name): os.fsencode(value) for name, value in order.get("env", {}).items()}
            self._environment.update((name, value) for name, value in new.items() if name not in kept)
            self._environment[ATTEMPT.encode()] = b"%d" % self._attempt
            os.write(2, b"paddlejob: attempt %d starts in place\n" % self._attempt)
            self._oom_kills = leftovers.oom_kills()
            return self._start()
        return False
