"""The status of a job's pods: counts by role, world size, first failure."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from paddlejob.api.meta import View, about


class RoleStatus(View, frozen=True, omit_defaults=False):
    """Pods of one role; of a finished job, the pods that remain, and how many had failed or succeeded."""

    ready: Annotated[str, about("Running and wanted pods, such as 2/2.")] = "0/0"
    replicas: Annotated[int, about("Pods that exist.")] = 0
    pending: Annotated[int, about("Pods that wait for a node or for their environment.")] = 0
    starting: Annotated[int, about("Pods with starting containers.")] = 0
    running: Annotated[int, about("Running pods.")] = 0
    failed: Annotated[int, about("Failed pods.")] = 0
    succeeded: Annotated[int, about("Succeeded pods.")] = 0
    unknown: Annotated[int, about("Pods on an unreachable node.")] = 0


class WorldSize(View, frozen=True, omit_defaults=False):
    """World size: the number of pods of each role that an attempt ran with."""

    attempt: Annotated[int, about("Attempt with these numbers of pods.")] = 0
    ps: Annotated[int, about("Parameter servers.")] = 0
    worker: Annotated[int, about("Workers.")] = 0
    heter: Annotated[int, about("Heter pods.")] = 0


class Failure(View, frozen=True, omit_defaults=False):
    """First failure of an attempt; kept after the restart."""

    attempt: Annotated[int, about("Attempt that failed.")] = 0
    pod: Annotated[str, about("Pod that failed first.")] = ""
    reason: Annotated[str, about("Machine-readable reason (CamelCase).")] = ""
    exit_code: Annotated[int, about("Exit code of its container, 0 if there was none.")] = 0
    message: Annotated[str, about("Human-readable explanation.")] = ""
    time: Annotated[datetime | None, about("Time of the failure.")] = None
    counted: Annotated[bool, about("Whether the failure counted against backoffLimit.")] = True
