"""Starts a container's supervisor and waits for its reports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

import msgspec

import paddlejob
from paddlejob.local.sandbox.spec import ContainerSpec, Report

_SOURCE = str(Path(paddlejob.__file__).parents[1])
_PROGRAM = (
    f"import sys; sys.path.insert(0, {_SOURCE!r}); "
    "from paddlejob.local.sandbox.supervisor import main; main(int(sys.argv[1]))"
)

SUPERVISOR_KILLED = 128 + 9


class StartError(Exception):
    """A container's program could not be started. The message gives the reason."""


class ContainerProcess:
    """One start of one container."""

    def __init__(self, supervisor: subprocess.Popen[bytes]) -> None:
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        self._supervisor = supervisor
        self._commands, self._reports = supervisor.stdin, supervisor.stdout
        self._started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._exit_code = SUPERVISOR_KILLED
        self._unread = b""
        self.log_error = ""

    @classmethod
    async def start(cls, spec: ContainerSpec, *, errors: int = subprocess.DEVNULL) -> Self:
        """Start a container and return once its program runs.

        Raises StartError if the program, its directory or a mount is unavailable.
        """
        process = cls(_spawn(spec, errors))
        asyncio.get_running_loop().add_reader(process._reports, process._read)
        try:
            await asyncio.shield(process._started)
        except (StartError, asyncio.CancelledError):
            process.kill()
            await process.wait()
            raise
        return process

    @property
    def pid(self) -> int:
        """Process id of the program on this machine."""
        return self._started.result()

    async def wait(self) -> int:
        """Return the exit code once all processes of the container have ended and its log is complete."""
        return await asyncio.shield(self._exited)

    def terminate(self) -> None:
        """Send SIGTERM to the program."""
        self._send(b"t")

    def kill(self) -> None:
        """Kill every process of the container."""
        self._send(b"k")

    def _send(self, command: bytes) -> None:
        if not self._commands.closed:
            with contextlib.suppress(BrokenPipeError):  # the supervisor has just ended
                self._commands.write(command)

    def _read(self) -> None:
        chunk = os.read(self._reports.fileno(), 65536)
        if not chunk:
            self._end()
            return
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            self._handle(msgspec.json.decode(line))

    def _handle(self, report: Report) -> None:
        if "started" in report:
            self._started.set_result(report["started"])
        elif "refused" in report:
            self._started.set_exception(StartError(report["refused"]))
        elif "log_error" in report:
            self.log_error = report["log_error"]
        else:
            self._exit_code = report["exited"]

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._reports)
        self._commands.close()
        self._reports.close()
        self._supervisor.wait()
        if not self._started.done():
            self._started.set_exception(StartError("its supervisor ended unexpectedly"))
        self._exited.set_result(self._exit_code)


def _spawn(spec: ContainerSpec, errors: int) -> subprocess.Popen[bytes]:
    """Start a supervisor in a new session, so that Ctrl-C at the terminal does not reach it."""
    description = os.memfd_create("paddlejob-container")
    try:
        os.write(description, json.dumps(spec).encode())
        os.lseek(description, 0, os.SEEK_SET)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(description)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            pass_fds=(description,),
            start_new_session=True,
            cwd="/",
            env={},
        )
    finally:
        os.close(description)
