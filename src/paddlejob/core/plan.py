"""The one function to read first: what a job needs next.

    plan(snapshot) -> Plan

`decide` is the specification: guards in order, each of which may be the answer. The order is the contract.
What begins an attempt is listed in `attempts.triggers.TRIGGERS`, what holds a job up in `policy.holds.HOLDS`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from paddlejob.api import defaulting, names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import PaddleJobStatus, Phase
from paddlejob.core import status
from paddlejob.core.actions import Event, EventType, Plan, soonest
from paddlejob.core.attempts.failures import failed
from paddlejob.core.attempts.inherited import finalizer_removal, with_world_size
from paddlejob.core.attempts.triggers import begin_attempt, next_attempt
from paddlejob.core.converge import converge, wait
from paddlejob.core.endings import clean_up, end, leave_to_garbage_collector
from paddlejob.core.observed import Observed
from paddlejob.core.policy.cleanup import stuck_terminating
from paddlejob.core.policy.deadline import deadline_exceeded
from paddlejob.core.policy.goodput import with_goodput
from paddlejob.core.policy.holds import first_hold
from paddlejob.core.policy.invalid_spec import report_invalid_spec
from paddlejob.core.policy.success import succeeded
from paddlejob.core.policy.suspend import suspend
from paddlejob.core.recording.recorder import NO_RECORDER, lacks_recorder, no_recorder_note
from paddlejob.core.snapshot import Snapshot

TROUBLE = (Reason.INVALID_SPEC, Reason.CREATE_FAILED, Reason.NO_HOST_PORT)


def plan(snapshot: Snapshot) -> Plan:
    """Decide what one job needs now."""
    if snapshot.job.spec.managed_by not in ("", names.CONTROLLER_NAME):
        return Plan(snapshot.job.status)
    job = Observed(with_world_size(snapshot))
    return finish(job, decide(job))


def decide(job: Observed) -> Plan:  # noqa: PLR0911  (a list of guards)
    """Return the new status and the actions of the first guard that applies."""
    if job.is_being_deleted:
        return leave_to_garbage_collector(job)
    if job.is_finished:
        return clean_up(job)
    if success := succeeded(job):
        return end(job, success)
    if job.is_suspended:
        return suspend(job)
    if verdict := deadline_exceeded(job) or failed(job):
        return end(job, verdict)
    if job.spec_errors:
        return report_invalid_spec(job)
    if attempt := next_attempt(job):
        return begin_attempt(job, attempt)
    if hold := first_hold(job):
        return wait(job, hold)
    return converge(job)


def finish(job: Observed, decided: Plan) -> Plan:
    """Complete a decision; the finalizer of an earlier operator comes before anything else."""
    if (removal := finalizer_removal(job.given)) is not None:
        return removal
    stuck, wait = stuck_terminating(
        (*job.given.pods, *job.given.predecessors), job.now, job.given.settings.force_delete_seconds
    )
    return msgspec.structs.replace(
        decided,
        status=with_goodput(job.given.job, decided.status, job.now, job.given.hang),
        events=() if job.is_being_deleted or job.is_finished else tuple(_events(job, decided.status)),
        stages=(stuck, *decided.stages) if stuck else decided.stages,
        requeue_after_seconds=soonest(decided.requeue_after_seconds, wait),
    )


def _events(job: Observed, new: PaddleJobStatus) -> Iterator[Event]:
    """Yield the events that a change of status deserves."""
    old, is_edited = job.status, job.status.observed_generation != job.given.job.metadata.generation
    if is_edited:
        for alias in defaulting.aliases(job.given.job.spec):
            yield Event(EventType.WARNING, Reason.ALIAS_USED, str(alias))
        if lacks_recorder(job.given):
            yield Event(EventType.WARNING, Reason.NO_RECORDER, NO_RECORDER)
    if (note := no_recorder_note(job.given)) and note in new.message and note not in old.message:
        yield Event(EventType.WARNING, Reason.NO_RECORDER, note)
    if new.phase is not old.phase and new.phase in status.CONDITION_PHASES:
        kind = EventType.WARNING if new.phase is Phase.FAILED else EventType.NORMAL
        yield Event(kind, str(new.phase), new.message)
    elif new.attempt != old.attempt:
        kind = EventType.NORMAL if new.phase is Phase.SCALING else EventType.WARNING
        yield Event(kind, new.reason, f"attempt {new.attempt}: {new.message}")
    elif new.reason in TROUBLE and new.message != old.message and (is_edited or not _is_known(old, new)):
        yield Event(EventType.WARNING, new.reason, new.message)


def _is_known(old: PaddleJobStatus, new: PaddleJobStatus) -> bool:
    """What is wrong with a spec changes with the spec; the rest of that message counts pods."""
    return new.reason == old.reason == Reason.INVALID_SPEC
