"""Findings about a running job, from its reports and logs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec


class Hang(msgspec.Struct, frozen=True, tag=True):
    """A job without progress."""

    attempt: int
    step: int
    seconds: int
    """Time since the last step."""
    odd: tuple[str, ...]
    """The ranks that the others wait for, such as `worker-1 on node-b`; empty if none stands out."""
    message: str
    has_reports: bool = True
    """Whether any rank still reports. If none does, the network may be the cause."""
    is_learned: bool = True
    """Whether the timeout was learned from all pauses of the job; otherwise it may be too short."""
    stacks: tuple[tuple[str, str], ...] = ()
    """Stack dumps by rank name, those of the odd ranks first."""


class Slowdown(msgspec.Struct, frozen=True, tag=True):
    """A rank that slows the others down."""

    attempt: int
    pod: str
    """Pod of the slowest rank."""
    message: str
    is_lasting: bool = False
    """Whether it has lasted long enough for a restart on another node to be worthwhile."""


class Awaited(msgspec.Struct, frozen=True, tag=True):
    """A rank that all others wait for."""

    attempt: int
    message: str


class IdleAccelerators(msgspec.Struct, frozen=True, tag=True):
    """Accelerators that the Paddle of a pod cannot use."""

    pod_uid: str
    message: str


Finding = Hang | Slowdown | Awaited | IdleAccelerators

F = TypeVar("F", Hang, Slowdown, Awaited, IdleAccelerators)


def find(findings: Iterable[Finding], kind: type[F]) -> F | None:
    """Return the finding of a kind, None if there is none."""
    return next((each for each in findings if isinstance(each, kind)), None)
