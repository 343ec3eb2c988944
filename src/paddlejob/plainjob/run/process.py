"""Run a child process in its own process group, log its output, and forward signals to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from paddlejob.parent_death import die_with_parent
from paddlejob.plainjob import errors
from paddlejob.plainjob.run.console import LogTee
from paddlejob.plainjob.run.launch import ProcessSpec

LAST_OUTPUT_SECONDS = 5.0
"""How long to read output after a process has ended, if one of its children holds the pipe open."""
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def exit_code(status: int) -> int:
    """Return the exit code as a shell reports it: 128 + n for signal n."""
    return status if status >= 0 else 128 - status


class GroupGuard:
    """A shell that kills a process group if this process dies first.

    The kernel kills only direct children. The children of a trainer, such as its data loaders, would remain.
    """

    def __init__(self, group: int) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):  # an image without a shell
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", 'read -r ended || kill -s KILL -- "-$1"', "sh", str(group)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """End the shell after the group has ended."""
        if self._shell is not None:
            with contextlib.suppress(OSError):
                self._shell.communicate(b"ended\n")


class Child:
    """A running process."""

    def __init__(self, process: asyncio.subprocess.Process, output: int, tee: LogTee) -> None:
        self._process = process
        self._guard = GroupGuard(process.pid)
        self._output = output
        self._tee = tee
        self._sent: int | None = None
        self._ended = asyncio.create_task(self._follow())

    async def wait(self) -> int:
        """Return the exit code, after all output has been written."""
        return await asyncio.shield(self._ended)

    @property
    def is_running(self) -> bool:
        return not self._ended.done()

    def send(self, number: int) -> None:
        """Send a signal to the process. SIGKILL is sent to its whole group.

        A trainer stops its children itself: it needs its data loaders to finish the batch before it saves. A
        shell dies without forwarding the signal; then its children receive it too.
        """
        if self._process.returncode is None:
            self._sent = number
            if number == signal.SIGKILL:
                self._send_to_group(number)
            else:
                self._process.send_signal(number)

    async def stop(self, grace_seconds: float) -> int:
        """Stop it with SIGTERM, after the grace period with SIGKILL; return its exit code."""
        self.send(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                return await self.wait()
        self.send(signal.SIGKILL)
        return await self.wait()

    async def _follow(self) -> int:
        copying = asyncio.create_task(self._copy())
        try:
            status = await self._process.wait()
            if self._sent is not None and status == -self._sent:
                self._send_to_group(self._sent)
            await asyncio.wait([copying], timeout=LAST_OUTPUT_SECONDS)
            if not copying.done():
                self._send_to_group(signal.SIGKILL)
                await asyncio.wait([copying], timeout=LAST_OUTPUT_SECONDS)
        finally:
            copying.cancel()
            await asyncio.wait([copying])
            self._tee.close()
            self._guard.dismiss()
        return exit_code(status)

    def _send_to_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def _copy(self) -> None:
        output = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(self._output, "rb", buffering=0)
        )
        try:
            while chunk := await output.read(1 << 16):
                self._tee.write(chunk)
        finally:
            transport.close()


@asynccontextmanager
async def run_process(
    process: ProcessSpec, directory: Path, tee: LogTee, inherited: Mapping[str, str], grace_seconds: float
) -> AsyncIterator[Child]:
    """Run a process. It has ended when the block is left.

    Raises SettingsError when the program cannot be started.
    """
    # Not asyncio's pipe: with that, a process has not ended while one of its children holds the pipe open.
    output, write_end = os.pipe()
    try:
        started = await asyncio.create_subprocess_exec(
            *process.command,
            cwd=directory,
            env={**inherited, **process.environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write_end,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
    except OSError as error:
        os.close(output)
        tee.close()
        raise errors.SettingsError(f"cannot start {process.command[0]!r}: {error.strerror}") from error
    finally:
        os.close(write_end)
    child = Child(started, output, tee)
    try:
        yield child
    finally:
        await child.stop(grace_seconds)


class SignalForwarder:
    """Forwards signals to the trainer of one pod; without a trainer, they cancel its task."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._child: Child | None = None
        self._task: asyncio.Task[int] | None = None

    def interrupt(self, number: int) -> None:
        """Forward the first signal to the trainer; the next one kills it."""
        again = self.received is not None
        self.received = self.received or number
        if self._child is not None:
            self._child.send(signal.SIGKILL if again else number)
        elif self._task is not None:
            self._task.cancel()

    def cancel_without_child(self, task: asyncio.Task[int]) -> None:
        """Set the task that a signal cancels while no trainer runs."""
        self._task = task

    @contextmanager
    def forward_to(self, child: Child) -> Iterator[None]:
        """Forward signals while the block runs."""
        self._child = child
        try:
            yield
        finally:
            self._child = None


@contextmanager
def handle_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` for every signal that asks this process to stop."""
    loop = asyncio.get_running_loop()
    for number in FORWARDED:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in FORWARDED:
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(number)
