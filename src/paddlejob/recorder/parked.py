"""A process that has imported Paddle and waits until it becomes the program of the next attempt.

It saves the time of the import, and costs the memory of one more interpreter with Paddle. Variables that
Paddle reads when it is imported must be set for the container: the program has not set its own yet.
"""

from __future__ import annotations

import importlib
import json
import os
from contextlib import suppress
from typing import Dict

PARKED = "PADDLEJOB_PARKED"
PIPE = "PADDLEJOB_PARKED_PIPE"
PARK_SECONDS = 15.0
"""Age of a program at which a process is parked, so that its import does not slow the program's start."""


class Parked:
    """PID 1's side: the parked process, if there is one, and the pipe by which it gets its turn."""

    def __init__(self) -> None:
        self.pid = 0
        self._reader = self._writer = -1

    def prepare(self, environment: Dict[bytes, bytes]) -> Dict[bytes, bytes]:
        """Open the pipe, and return the environment of a process that is to be parked."""
        self._reader, self._writer = os.pipe()
        os.set_inheritable(self._reader, True)  # noqa: FBT003
        os.set_blocking(self._writer, False)
        return {**environment, PIPE.encode(): b"%d" % self._reader}

    def abandon(self) -> None:
        """Close the pipe of a process that could not be started."""
        os.close(self._reader)
        os.close(self._writer)

    def begin(self, pid: int) -> None:
        """Note the process that has the other end of the pipe."""
        self.pid = pid
        os.close(self._reader)

    def take(self, environment: Dict[bytes, bytes]) -> int:
        """Give the parked process its turn; return its ID, 0 if there is none that could take it."""
        pid, variables = self.pid, {os.fsdecode(k): os.fsdecode(v) for k, v in environment.items()}
        message = json.dumps(variables).encode() + b"\n"
        with suppress(OSError):
            if pid and os.write(self._writer, message) == len(message):
                self.end()
                return pid
        self.end()
        return 0

    def end(self) -> None:
        """Close the pipe: a process that waits at the other end exits."""
        if self.pid:
            os.close(self._writer)
            self.pid = 0


def wait_for_turn() -> None:
    """Import Paddle, and return when this process is to be the program, with the variables of its attempt."""
    pipe = int(os.environ.pop(PIPE))
    os.set_inheritable(pipe, False)  # noqa: FBT003
    _import_silently("paddle")
    with os.fdopen(pipe, encoding="ascii") as file:
        message = file.readline()
    if not message.endswith("\n"):
        os._exit(0)
    os.environ.update(json.loads(message))


def _import_silently(name: str) -> None:
    """Import a module; its output would appear in the log of another attempt."""
    outputs = [os.dup(1), os.dup(2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nothing, number)
    try:
        importlib.import_module(name)
    except BaseException:
        os._exit(1)
    for number, output in enumerate(outputs, 1):
        os.dup2(output, number)
        os.close(output)
    os.close(nothing)
