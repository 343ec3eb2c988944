"""Whether a job has done what it was for."""

from __future__ import annotations

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase, Role, SuccessPolicy
from paddlejob.core.classify import Roster, Seat
from paddlejob.core.standing import Standing


def success(roster: Roster, policy: str) -> Standing | None:
    """Return the verdict when the workers that matter are done.

    Only workers make a success: parameter servers and heter pods serve for ever, and how they end after the
    last worker is nobody's concern.
    """
    workers = roster.desired(Role.WORKER)
    if policy == SuccessPolicy.WORKER_0:
        return _completed("worker-0 succeeded") if Seat(Role.WORKER, 0) in roster.finished else None
    if not workers or len(roster.finished) < workers:
        return None
    return _completed("the worker succeeded" if workers == 1 else f"all {workers} workers succeeded")


def _completed(message: str) -> Standing:
    return Standing(Phase.COMPLETED, Reason.WORKERS_SUCCEEDED, message)
