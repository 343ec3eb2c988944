"""PID 1 of a training container: runs the user's program as its child, once for each attempt.

The recorder's sitecustomize calls `supervise` before any other code of the program. This process stays behind
as PID 1, and a child executes the same command again. If the program fails, PID 1 ends everything that the
program has started, reports to the operator, and waits for the order to run it again. If nobody answers it
exits with the program's code, so that the pod ends as it does without a supervisor.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import time
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Mapping

from . import leftovers, processes
from .attend import ANSWER_SECONDS, Attend

ATTEND_URL = "PADDLEJOB_ATTEND_URL"
ATTEMPT = "PADDLEJOB_ATTEMPT"
KEEP_ENV = "PADDLEJOB_KEEP_ENV"
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
    if _can_run_again(command, environment):
        _Supervisor(directory, command, environment).run()


def _can_run_again(command: List[bytes], environment: Mapping[bytes, bytes]) -> bool:
    # A fork copies only one of several threads.
    if os.getpid() != 1 or len(os.listdir("/proc/self/task")) > 1:
        return False
    if _is_input(0) or any(part.startswith((b"/dev/fd/", b"/proc/self/fd/")) for part in command):
        return False
    return not any(address in part for part in command for address in _addresses(environment))


def _is_input(file: int) -> bool:
    """Return whether a program can read something; a pipe has no second copy for the next attempt.

    A terminal is input, too, and sends its signals to both processes.
    """
    try:
        return os.isatty(file) or not stat.S_ISCHR(os.fstat(file).st_mode)
    except OSError:
        return True


def _addresses(environment: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Yield what changes with each attempt; a shell may have written it into the command."""
    kept = environment.get(KEEP_ENV.encode(), b"").split(b",")
    for name, value in environment.items():
        is_address = name in (b"PADDLE_PORT", b"PADDLE_MASTER", b"PADDLE_PSERVERS_IP_PORT_LIST")
        if (is_address or name.endswith((b"_ENDPOINT", b"_ENDPOINTS"))) and name not in kept:
            yield from filter(None, value.split(b","))


class _Supervisor:
    def __init__(self, directory: str, command: List[bytes], environment: Dict[bytes, bytes]) -> None:
        self._command = command
        self._executable = processes.executable()
        self._environment = environment
        self._line = Attend(os.fsdecode(environment[ATTEND_URL.encode()]), directory)
        self._attempt = int(environment.get(ATTEMPT.encode(), b"0"))
        self._program = 0
        self._state = RUNNING
        self._code = 0
        self._since = time.monotonic()
        self._is_told_to_end = False
        self._is_oom = False
        self._kept_files = leftovers.files()
        self._oom_kills = leftovers.oom_kills()
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
        # A signal between the fork and the next lines would reach the wrong process, or none.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        program = os.fork()
        if not program:
            with suppress(Exception):
                self._execute()
            return True
        self._program, self._state, self._is_oom = program, RUNNING, False
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        self._line.withdraw()
        return False

    def _execute(self) -> None:
        """Execute the command: a fresh interpreter has no trace of this process. Return if that fails."""
        os.environ.update({os.fsdecode(name): os.fsdecode(text) for name, text in self._environment.items()})
        self._line.close()
        self._release_signals()
        if os.getsid(0) == os.getppid():
            # PID 1 of a container leads a session and a process group.
            os.setsid()
        os.execve(self._executable, self._command, self._environment)  # noqa: S606

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

    def _ended(self, status: int) -> None:
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self._code = 128 + killed if killed else os.WEXITSTATUS(status)
        if self._code == 0 or self._is_told_to_end:
            os._exit(self._code)
        self._state, self._since = ENDING, time.monotonic()
        self._is_oom = killed == signal.SIGKILL and leftovers.oom_kills() > self._oom_kills

    def _kill(self) -> None:
        """Kill all processes of the program; one that waits for a device may take any time to die."""
        for pid in processes.descendants():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _end(self) -> None:
        """Kill until nothing is left; then the program is down."""
        self._kill()
        # A process whose parent is gone is a child of PID 1. So without a child there is no process at all,
        # which a list of /proc cannot tell: it takes a while to read.
        if not self._reap():
            leftovers.remove_files(self._kept_files)
            self._state, self._since = DOWN, time.monotonic()
            self._line.withdraw()

    # --- orders

    def _turn(self) -> bool:
        """Wait for an event and handle it; return True in a child that has to be the program itself."""
        reads, writes = self._line.fds
        longest = {RUNNING: ANSWER_SECONDS, ENDING: KILL_SECONDS, DOWN: 1.0}[self._state]
        timeout = min(longest, self._line.seconds())
        self._wait(reads, writes, timeout)
        self._reap()
        if self._state == ENDING:
            self._end()
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
        report = {"attempt": self._attempt, "state": DOWN, "code": self._code}
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
