"""Typed changes of a job's status."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict, Unpack

import msgspec

from paddlejob.api.meta import Condition
from paddlejob.api.v1 import (
    Failure,
    Goodput,
    PaddleJobStatus,
    Phase,
    ProgressMark,
    Recovery,
    RoleStatus,
    TrainingProgress,
    WorldSize,
)


class StatusFields(TypedDict, total=False):
    """The fields of `PaddleJobStatus` as keyword arguments, so that mypy checks their names and types."""

    phase: Phase
    mode: str
    reason: str
    message: str
    ps: RoleStatus | None
    worker: RoleStatus | None
    heter: RoleStatus | None
    conditions: tuple[Condition, ...]
    start_time: datetime | None
    completion_time: datetime | None
    observed_generation: int
    host_port: int
    selector: str
    attempt: int
    base_attempt: int
    process_attempt: int
    attempt_time: datetime | None
    consecutive_restarts: int
    rounds: int
    retry_time: datetime | None
    resume_time: datetime | None
    restarts: int
    workers: int
    succeeded_workers: str
    replaced_workers: str
    moved_ranks: str
    spares: str
    world_size: WorldSize | None
    last_failure: Failure | None
    last_recovery: Recovery | None
    active_since: datetime | None
    active_seconds: int
    progress: TrainingProgress | None
    goodput: Goodput | None
    progress_mark: ProgressMark | None
    restarts_without_progress: int
    suspect_nodes: tuple[str, ...]


def change_status(status: PaddleJobStatus, **fields: Unpack[StatusFields]) -> PaddleJobStatus:
    """Return the status with other values in some fields."""
    return msgspec.structs.replace(status, **fields)
