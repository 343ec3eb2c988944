"""The one function to read first: what a job needs next.

    plan(snapshot) -> Plan

`decide` is the specification: guards in order, each of which may be the answer. The order is the contract.
What begins an attempt is listed in `attempts.triggers.TRIGGERS`, what holds a job up in `holds.HOLDS`.
"""

from __future__ import annotations

from paddlejob.api import names
from paddlejob.core.actions import Plan
from paddlejob.core.attempts.failures import failed
from paddlejob.core.attempts.triggers import begin_attempt, next_attempt
from paddlejob.core.converge import converge, wait
from paddlejob.core.endings import clean_up, end, leave_to_garbage_collector
from paddlejob.core.finish import finish
from paddlejob.core.holds import first_hold
from paddlejob.core.invalid_spec import report_invalid_spec
from paddlejob.core.observed import Observed
from paddlejob.core.policy.deadline import deadline_exceeded
from paddlejob.core.policy.success import succeeded
from paddlejob.core.policy.suspend import suspend
from paddlejob.core.snapshot import Snapshot


def plan(snapshot: Snapshot) -> Plan:
    """Decide what one job needs now."""
    if snapshot.job.spec.managed_by not in ("", names.CONTROLLER_NAME):
        return Plan(snapshot.job.status)
    job = Observed(snapshot)
    return finish(job, decide(job))


def decide(job: Observed) -> Plan:  # noqa: PLR0911  (a list of guards)
    """Return the new status and the actions of the first guard that applies."""
    if job.is_being_deleted:
        return leave_to_garbage_collector(job)
    if job.is_finished:
        return clean_up(job)
    if job.is_suspended:
        return suspend(job)
    if verdict := succeeded(job) or deadline_exceeded(job) or failed(job):
        return end(job, verdict)
    if job.spec_errors:
        return report_invalid_spec(job)
    if attempt := next_attempt(job):
        return begin_attempt(job, attempt)
    if hold := first_hold(job):
        return wait(job, hold)
    return converge(job)
