"""Containers for the supervisor: programs as PID 1 of a PID namespace, and an operator that gives orders."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from paddlejob.operator.reports import intake
from paddlejob.operator.reports.certificate import Certificate
from paddlejob.operator.reports.intake import Answer, Call
from paddlejob.operator.reports.tokens import PodIdentity
from tests.recorder.interpreter import PACKAGE
from tests.support.waiting import eventually, eventually_async

HOLD_SECONDS = 20.0
NAMESPACES = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
AS_CONTAINER = """mount -t tmpfs none /dev/shm && exec setsid sh -c '%s exec "$0" "$@"' "$0" "$@" """
"""A container has its own /dev/shm, and its PID 1 leads a session."""


@functools.cache
def namespaces() -> list[str]:
    """Return the command that makes the namespaces of a container; skip the test where none can be made."""
    for command in (NAMESPACES, [*NAMESPACES, "--user", "--map-root-user"]):
        done = subprocess.run(
            [*command, "sh", "-c", AS_CONTAINER % "", "true"], capture_output=True, check=False
        )
        if done.returncode == 0:
            return command
    pytest.skip("this machine allows neither root's nor a user's PID namespaces")


def mount(directory: Path, trusted: Certificate, token: str, changes: str = "") -> Path:
    """Lay the recorder out as the kubelet does; `changes` is code that redefines names of the supervisor."""
    place = directory / "recorder"
    shutil.copytree(PACKAGE, place, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "ca.crt").write_text(trusted.certificate)
    (place / "token").write_text(f"{token}\n")
    with (place / "supervisor.py").open("a") as code:
        code.write(f"\n{changes}\n")
    return place


class Container:
    """A program and what it starts, as PID 1 and the processes below it."""

    def __init__(
        self, command: list[str], environment: dict[str, str], directory: Path, before: str = ""
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.environment = environment
        self.output = directory / "output"
        with self.output.open("wb") as log:
            self._process = subprocess.Popen(
                [*namespaces(), "sh", "-c", AS_CONTAINER % before, *command],
                cwd=directory,
                env={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def first(self) -> int:
        """PID 1, by its number outside."""
        return eventually(lambda: children(self._process.pid))[0]

    @property
    def program(self) -> int:
        """The program's number outside; without a supervisor it is PID 1."""
        return (children(self.first) or [self.first])[0]

    @property
    def processes(self) -> list[int]:
        """All processes, by their numbers in the container."""
        return sorted(int(each.name) for each in self.root("proc").glob("[0-9]*"))

    def root(self, path: str) -> Path:
        return Path(f"/proc/{self.first}/root") / path

    def has(self, line: str) -> bool:
        return line in self.log.splitlines()

    async def says(self, line: str, count: int = 1) -> None:
        await eventually_async(lambda: self.log.splitlines().count(line) >= count, says=lambda: self.log)

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self._process.wait, 60)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def destroy(self) -> None:
        with suppress(ProcessLookupError, IndexError):
            if not self.has_ended:
                os.kill(self.first, signal.SIGKILL)
        self._process.wait(60)


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Operator:
    """Holds the questions of supervisors, and answers with the orders of the test."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self.got: list[dict[str, Any]] = []
        self.numbers: list[int] = []
        self.by_token: dict[str, dict[str, Any]] = {}
        self.orders: dict[str, list[Answer]] = {}
        self._changed = asyncio.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/v1/attend"

    def order(self, token: str = "a", status: int = 200, **order: Any) -> None:
        """Give an order to the supervisor with this token: to its open question, or to the next one."""
        self.orders.setdefault(token, []).append(Answer(status, order))
        self._change()

    async def sees(self, token: str = "a", **state: Any) -> None:
        """Wait for a question with exactly this state."""
        await eventually_async(lambda: self.by_token.get(token) == state, says=lambda: self.got)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Listen; a second time at the same port."""
        address, context = f"127.0.0.1:{self.port}", self._certificate.server_context()
        async with intake.serve(address, context, self._admit, {"/v1/attend": self._handle}) as self.port:
            yield

    async def _admit(self, token: str, _: str) -> PodIdentity:
        return PodIdentity("team", token, token)

    async def _handle(self, call: Call) -> Answer:
        sender, state = call.sender, json.loads(call.body)
        self.numbers.append(state.pop("number"))
        self.ended_seconds = state.pop("endedSeconds", None)
        self.got.append(state)
        self.by_token[sender.name] = state
        self._change()
        with suppress(TimeoutError):
            async with asyncio.timeout(HOLD_SECONDS):
                while self.by_token[sender.name] is state:
                    if waiting := self.orders.get(sender.name):
                        return waiting.pop(0)
                    await self._changed.wait()
        return Answer(200, {})

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


Run = Callable[..., Container]


def start(
    program: str | list[str],
    place: Path,
    url: str,
    directory: Path,
    *,
    python: str = sys.executable,
    before: str = "",
    more_path: str = "",
    **more: str,
) -> Container:
    """Run a program as a pod with the recorder does; an empty URL means without a supervisor.

    `before` is the beginning of the shell's command line that executes the program.
    """
    environment = {
        "PYTHONPATH": f"{place / 'site'}:{more_path}" if more_path else str(place / "site"),
        "PADDLEJOB_ATTEMPT": "3",
        "HERE": str(directory),
        **more,
    }
    if url:
        environment["PADDLEJOB_ATTEND_URL"] = url
    command = [python, "-c", program] if isinstance(program, str) else [python, *program]
    return Container(command, environment, directory, before)
