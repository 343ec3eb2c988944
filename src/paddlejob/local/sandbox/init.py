"""The first process of a container: starts the program, reaps children, and leaves no process behind."""

from __future__ import annotations

import os
import select
import signal

from paddlejob.local.sandbox import filesystem, kernel
from paddlejob.parent_death import die_with_parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddlejob.local.sandbox.spec import ContainerSpec

TERMINATE = b"t"
KILL = b"k"
STARTED = b"s"
REFUSED = b"r"
EXITED = b"x"


class Init:
    """Runs in a forked child of the supervisor; `commands` and `reports` are the two pipes between them."""

    def __init__(self, spec: ContainerSpec, commands: int, reports: int, output: int) -> None:
        self._spec = spec
        self._commands = commands
        self._reports = reports
        self._output = output
        self._main = 0
        self._exit_code: int | None = None
        self._asked_to_end = False
        self._fell_to_request = False

    def run(self) -> None:
        """Live the container's life."""
        isolation = self._spec["isolation"]
        if isolation == "full":
            # As the first process of its pid namespace it takes all others with it.
            die_with_parent()
        else:
            kernel.adopt_orphans()
        wakeups = listen_for_children()
        try:
            if isolation != "none":
                kernel.unshare(kernel.NEW_MOUNTS | kernel.NEW_HOSTNAME)
                kernel.set_hostname(self._spec["hostname"])
                filesystem.enter(self._spec["mounts"], fresh_proc=isolation == "full")
            self._main = self._start_program()
        except OSError as error:
            self._report(REFUSED, error.strerror or str(error))
            return
        self._report(STARTED)
        os.close(self._output)
        self._serve(wakeups)
        if isolation != "full":
            kill_descendants()

    def _start_program(self) -> int:
        """Fork and execute the program, and return when it is known to run."""
        failure, failure_write = os.pipe()
        child = os.fork()
        if child == 0:
            self._become_program(failure_write)
        os.close(failure_write)
        with open(failure, "rb") as reader:
            message = reader.read().decode(errors="replace")
        if message:
            os.waitpid(child, 0)
            raise OSError(0, message)
        return child

    def _become_program(self, failure: int) -> None:
        spec, program = self._spec, self._spec["argv"][0]
        what = f'working directory "{spec["cwd"]}"'
        try:
            os.setsid()
            if spec["isolation"] != "full":
                die_with_parent()
            os.chdir(spec["cwd"])
            what = f'"{program}"'
            os.dup2(self._output, 1)
            os.dup2(self._output, 2)
            heed_all_signals()
            os.execvpe(program, spec["argv"], spec["env"])  # noqa: S606 - this is the container's program
        except OSError as error:
            os.write(failure, f"{what}: {error.strerror}".encode())
        finally:
            os._exit(127)

    def _serve(self, wakeups: int) -> None:
        """Wait until the program has ended.

        The request to end goes to the program alone, as on a cluster: what it has started, such as the
        process that feeds it data, is its own to end. A shell dies of the request and has passed nothing on:
        then its children are asked in its place, and waited for while they save their work.
        """
        poll = select.poll()
        poll.register(wakeups, select.POLLIN)
        poll.register(self._commands, select.POLLIN)
        while self._exit_code is None or (self._fell_to_request and self._reach_group(0)):
            for descriptor, _ in poll.poll():
                if descriptor == wakeups:
                    os.read(wakeups, 512)
                    self._reap()
                elif self._handle(os.read(self._commands, 1)):
                    return

    def _handle(self, command: bytes) -> bool:
        """Follow an order; no order at all means that the supervisor is gone."""
        if command == TERMINATE:
            self._asked_to_end = True
            if self._exit_code is None:
                os.kill(self._main, signal.SIGTERM)
            return False
        return True

    def _reap(self) -> None:
        for child, status in dead_children():
            if child == self._main:
                self._exit_code = exit_code_of(status)
                died_of_it = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
                self._fell_to_request = self._asked_to_end and died_of_it
                if self._fell_to_request:
                    self._reach_group(signal.SIGTERM)
                self._report(EXITED, str(self._exit_code))

    def _reach_group(self, number: int) -> bool:
        """Send a signal to what is left of the program's group, 0 for none; tell whether there is anybody."""
        try:
            os.killpg(self._main, number)
        except OSError:
            return False
        return True

    def _report(self, kind: bytes, text: str = "") -> None:
        os.write(self._reports, kind + text.encode(errors="replace") + b"\n")


def listen_for_children() -> int:
    """Return a descriptor that becomes readable when a child has ended."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def heed_all_signals() -> None:
    """Undo what Python, nohup or a shell's `&` chose to ignore: it would stay ignored in the program."""
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def dead_children() -> list[tuple[int, int]]:
    """Reap all children that have ended, and return them with their wait status."""
    dead: list[tuple[int, int]] = []
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead
        if child == 0:
            return dead
        dead.append((child, status))


def exit_code_of(status: int) -> int:
    """Return a wait status as container runtimes report it: killed by signal n is 128+n."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def kill_descendants() -> None:
    """Kill every process below this one; orphans come here, because this process adopts them."""
    while children := children_of(os.getpid()):
        for child in children:
            _kill_tree(child)
        # Somebody has to end now; with several waiting, the others are found in the next round.
        os.waitpid(-1, 0)
        dead_children()


def _kill_tree(process: int) -> None:
    below = children_of(process)
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
    for child in below:
        _kill_tree(child)


def children_of(process: int) -> list[int]:
    """Return the ids of a process's children, none when it is gone."""
    try:
        with open(f"/proc/{process}/task/{process}/children") as listing:
            return [int(word) for word in listing.read().split()]
    except OSError:
        return [child for child in _all_processes() if _parent_of(child) == process]


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _parent_of(process: int) -> int:
    try:
        with open(f"/proc/{process}/stat") as status:
            return int(status.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
