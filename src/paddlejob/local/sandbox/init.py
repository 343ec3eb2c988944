"""The first process of a container: starts the program, reaps children and kills remaining processes."""

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
    """Runs in a forked child of the supervisor. `commands` and `reports` are the pipes between them."""

    def __init__(self, spec: ContainerSpec, commands: int, reports: int, output: int) -> None:
        self._spec = spec
        self._commands = commands
        self._reports = reports
        self._output = output
        self._main = 0
        self._exit_code: int | None = None
        self._terminating = False
        self._died_of_sigterm = False

    def run(self) -> None:
        """Run the container until it exits."""
        isolation = self._spec["isolation"]
        if isolation == "full":
            # When the first process of a PID namespace dies, the kernel kills all others.
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
        """Fork and execute the program. Returns its process id once it runs."""
        failure, failure_write = os.pipe()
        child = os.fork()
        if child == 0:
            self._execute_program(failure_write)
        os.close(failure_write)
        with open(failure, "rb") as reader:
            message = reader.read().decode(errors="replace")
        if message:
            os.waitpid(child, 0)
            raise OSError(0, message)
        return child

    def _execute_program(self, failure: int) -> None:
        spec, program = self._spec, self._spec["argv"][0]
        subject = f'working directory "{spec["cwd"]}"'
        try:
            os.setsid()
            if spec["isolation"] != "full":
                die_with_parent()
            os.chdir(spec["cwd"])
            subject = f'"{program}"'
            os.dup2(self._output, 1)
            os.dup2(self._output, 2)
            reset_signals()
            os.execvpe(program, spec["argv"], spec["env"])  # noqa: S606 - the container's program
        except OSError as error:
            os.write(failure, f"{subject}: {error.strerror}".encode())
        finally:
            os._exit(127)

    def _serve(self, wakeups: int) -> None:
        """Wait until the program has ended.

        SIGTERM goes to the program only, as on a cluster: it stops its own children, such as data loaders.
        A shell dies of SIGTERM without passing it on. Then its process group gets SIGTERM too, and the
        container ends when the group has.
        """
        poll = select.poll()
        poll.register(wakeups, select.POLLIN)
        poll.register(self._commands, select.POLLIN)
        while self._exit_code is None or (self._died_of_sigterm and self._signal_group(0)):
            for descriptor, _ in poll.poll():
                if descriptor == wakeups:
                    os.read(wakeups, 512)
                    self._reap()
                elif self._handle(os.read(self._commands, 1)):
                    return

    def _handle(self, command: bytes) -> bool:
        """Handle a command and return whether to exit; EOF means the supervisor has died."""
        if command == TERMINATE:
            self._terminating = True
            if self._exit_code is None:
                os.kill(self._main, signal.SIGTERM)
            return False
        return True

    def _reap(self) -> None:
        for child, status in reap_children():
            if child == self._main:
                self._exit_code = exit_code_of(status)
                was_sigterm = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM
                self._died_of_sigterm = self._terminating and was_sigterm
                if self._died_of_sigterm:
                    self._signal_group(signal.SIGTERM)
                self._report(EXITED, str(self._exit_code))

    def _signal_group(self, number: int) -> bool:
        """Send a signal (0 for none) to the program's process group. Returns whether the group exists."""
        try:
            os.killpg(self._main, number)
        except OSError:
            return False
        return True

    def _report(self, kind: bytes, text: str = "") -> None:
        os.write(self._reports, kind + text.encode(errors="replace") + b"\n")


def listen_for_children() -> int:
    """Return a descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def reset_signals() -> None:
    """Reset signals that Python, nohup or a shell's `&` ignored: the program would inherit that."""
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def reap_children() -> list[tuple[int, int]]:
    """Reap all ended children. Returns their process ids and wait statuses."""
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
    """Return the exit code that container runtimes report: 128+n for a process killed by signal n."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def kill_descendants() -> None:
    """Kill all descendants, including orphans, which this process adopts."""
    while children := children_of(os.getpid()):
        for child in children:
            _kill_tree(child)
        # Wait for at least one child; the next round finds the others.
        os.waitpid(-1, 0)
        reap_children()


def _kill_tree(process: int) -> None:
    below = children_of(process)
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
    for child in below:
        _kill_tree(child)


def children_of(process: int) -> list[int]:
    """Return the process ids of a process's children, none if it has ended."""
    try:
        with open(f"/proc/{process}/task/{process}/children") as listing:
            return [int(word) for word in listing.read().split()]
    except OSError:
        processes = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        return [child for child in processes if _parent_of(child) == process]


def _parent_of(process: int) -> int:
    try:
        with open(f"/proc/{process}/stat") as status:
            return int(status.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
