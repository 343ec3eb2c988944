"""Jobs that one sentence explains: running, done, suspended, invalid, waiting to be restarted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from paddlejob.api import names
from paddlejob.api.v1 import Phase
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.result import Advice, Finding

OPERATOR_SECONDS = 30.0
"""An operator that runs has looked at a job by then."""


def unseen_by_operator(evidence: Evidence) -> Iterator[Finding]:
    """Find a job that no operator has written a status for."""
    job, created = evidence.job, evidence.job.metadata.creation_timestamp
    if job.spec.managed_by not in ("", names.CONTROLLER_NAME):
        text = f"spec.managedBy leaves the job to {job.spec.managed_by}; the PaddleJob operator ignores it"
        yield Finding("ManagedElsewhere", text)
    elif not job.status.phase:
        seconds = (evidence.now - created).total_seconds() if created else 0.0
        if seconds < OPERATOR_SECONDS:
            yield Finding("New", f"created {duration(seconds)} ago; the operator has not looked at it yet")
            return
        text = f"no operator has looked at the job in {duration(seconds)}"
        check = "check that the operator runs: kubectl get pods -A -l app.kubernetes.io/name=paddlejob"
        yield Finding("NoOperator", text, advice=(Advice(check),))


def settled(evidence: Evidence) -> Iterator[Finding]:
    """Find a job whose phase says it all."""
    status = evidence.job.status
    if status.phase in (Phase.COMPLETED, Phase.FAILED, Phase.SUSPENDED, Phase.TERMINATING, Phase.RUNNING):
        yield Finding(str(status.phase), status.message)


def waiting(evidence: Evidence) -> Iterator[Finding]:
    """Say what the operator says."""
    status, rank = evidence.job.status, evidence.blocking
    yield Finding(status.reason or "Waiting", status.message or "waiting", rank=str(rank or ""))


def duration(seconds: float) -> str:
    """Such as 45s, 12m, 3h 4m, 2d 3h."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 60:
        return f"{minutes}m"
    return f"{hours}h {minutes % 60}m" if hours < 48 else f"{days}d {hours % 24}h"


def seconds_since(moment: datetime | None, now: datetime) -> float | None:
    """Return how long ago something was."""
    return (now - moment).total_seconds() if moment else None
