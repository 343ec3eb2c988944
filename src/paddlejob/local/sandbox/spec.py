"""Messages between the runner and a supervisor: plain JSON, because they cross a process boundary."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Isolation = Literal["full", "mounts", "none"]
"""What the kernel allows: own processes and own mounts, own mounts only, or neither."""


class Bind(TypedDict):
    """Show a file or directory at another path."""

    kind: Literal["bind"]
    source: str
    target: str
    read_only: bool


class Overlay(TypedDict):
    """Show directories at a path; what is written there lands in `upper`, never in them."""

    kind: Literal["overlay"]
    lower: list[str]
    upper: str
    work: str
    target: str


Mount = Bind | Overlay


class ContainerSpec(TypedDict):
    """One start of one container."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    log: str
    isolation: Isolation
    hostname: str
    mounts: list[Mount]


class Report(TypedDict):
    """A line from the supervisor: `started`, then `exited`; or only `refused`."""

    started: NotRequired[int]
    """The program's process id as this machine sees it."""
    refused: NotRequired[str]
    """Why the program could not be started, in words."""
    exited: NotRequired[int]
    """The program's exit code; killed by signal n is 128+n."""
    log_error: NotRequired[str]
    """Why the end of the log is missing."""
