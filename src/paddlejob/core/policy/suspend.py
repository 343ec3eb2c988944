"""Suspended jobs: their pods are deleted."""

from __future__ import annotations

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase
from paddlejob.api.validation.errors import join
from paddlejob.core import status
from paddlejob.core.actions import Kind, Plan
from paddlejob.core.attempts import advance
from paddlejob.core.endings import gang_removals
from paddlejob.core.messages import PhaseReason
from paddlejob.core.observed import Observed
from paddlejob.core.policy import deadline
from paddlejob.core.policy.cleanup import deletions


def suspend(job: Observed) -> Plan:
    """Take the pods away. The attempt that resumes the job is a new one; the clock of its deadline stops."""
    text = "suspended; set spec.suspend to false to resume"
    text += f", when this is corrected: {join(job.spec_errors)}" if job.spec_errors else ""
    phase_reason = PhaseReason(Phase.SUSPENDED, Reason.SUSPENDED, text)
    changes = {} if job.status.phase is Phase.SUSPENDED else _next_attempt(job)
    if not job.given.pods:
        # Another job may need the ports meanwhile; the attempt that resumes chooses again.
        changes["host_port"] = 0
    resting = status.next_status(job.job, job.spec, job.pods, phase_reason, job.now, **changes)
    stage = deletions(Kind.POD, job.given.pods)
    return Plan(resting, (*((stage,) if stage else ()), *gang_removals(job.given)))


def _next_attempt(job: Observed) -> dict[str, object]:
    attempt = job.status.attempt + 1
    return {
        "attempt": attempt,
        "base_attempt": attempt,
        "world_size": None,
        "succeeded_workers": "",
        "replaced_workers": "",
        "consecutive_restarts": 0,
        "rounds": 0,
        "retry_time": None,
        **deadline.stopped_clock(job.job, job.now),
        **advance.after_attempt(job.status, counted=False),
    }
