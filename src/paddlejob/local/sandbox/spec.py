"""JSON messages between the runner and a supervisor."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

Isolation = Literal["full", "mounts", "none"]
"""PID and mount namespace, mount namespace only, or neither."""


class Bind(TypedDict):
    """A bind mount."""

    kind: Literal["bind"]
    source: str
    target: str
    read_only: bool


class Overlay(TypedDict):
    """An overlay mount: writes go to `upper`, and `lower` stays unchanged."""

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
    """A line from the supervisor: `started` then `exited`, or only `refused`."""

    started: NotRequired[int]
    """Process id of the program on this machine."""
    refused: NotRequired[str]
    """Why the program could not be started."""
    exited: NotRequired[int]
    """Exit code of the program; 128+n if it was killed by signal n."""
    log_error: NotRequired[str]
    """Why the log is incomplete."""
