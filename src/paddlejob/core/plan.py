"""Decides the next steps of a job. Read this module first.

    plan(snapshot) -> Plan

`decide` is the specification: a list of guards, of which the first that applies makes the plan. Their order
is part of the specification. `attempts.triggers.TRIGGERS` lists the causes of a new attempt, and
`policy.holds.HOLDS` lists the obstacles that a job may have to wait for.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from paddlejob.api import defaulting, names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import PaddleJobStatus, Phase
from paddlejob.api.validation.env import master_warning
from paddlejob.core import status
from paddlejob.core.accelerators import unlaunched_cards
from paddlejob.core.actions import Event, EventType, Plan, soonest
from paddlejob.core.attempts import recovery
from paddlejob.core.attempts.failures import failure_verdict
from paddlejob.core.attempts.inherited import finalizer_removal
from paddlejob.core.attempts.triggers import begin_attempt, next_attempt
from paddlejob.core.converge import converge, wait
from paddlejob.core.observed import Observed, observe, resolve
from paddlejob.core.policy.cleanup import stuck_terminating
from paddlejob.core.policy.deadline import deadline_verdict
from paddlejob.core.policy.endings import clean_up, end, leave_to_garbage_collector, suspend
from paddlejob.core.policy.holds import first_hold
from paddlejob.core.policy.invalid_spec import report_invalid_spec
from paddlejob.core.policy.success import success_verdict
from paddlejob.core.recorder import NO_RECORDER, recorder_of
from paddlejob.core.snapshot import Snapshot
from paddlejob.training.findings import Hang
from paddlejob.training.goodput import add_goodput

NOT_PARKED = "spec.restartPolicy.parked has no effect, because the job has no recorder"
NO_SPARES = "spec.spares has no effect, because the job has no recorder or its pods have IPv6 addresses"
TROUBLE = (Reason.INVALID_SPEC, Reason.CREATE_FAILED, Reason.NO_HOST_PORT)


def plan(snapshot: Snapshot) -> Plan:
    """Return the status and the actions that a job needs now."""
    if snapshot.job.spec.managed_by not in ("", names.CONTROLLER_NAME):
        return Plan(snapshot.job.status)
    job = observe(snapshot)
    return finish(job, decide(job))


def decide(job: Observed) -> Plan:  # noqa: PLR0911  (a list of guards)
    """Return the new status and the actions of the first guard that applies.

    `observe` has validated the spec. If it is invalid, the guards before `report_invalid_spec` judge by those
    of its fields that can be trusted.
    """
    if job.is_being_deleted:
        return leave_to_garbage_collector(job)
    if job.is_finished:
        return clean_up(job)
    if success := success_verdict(job):
        return end(job, success)
    if job.is_suspended:
        return suspend(job)
    if verdict := deadline_verdict(job) or failure_verdict(job):
        return end(job, verdict)
    if job.spec_errors:
        return report_invalid_spec(job)
    valid = resolve(job)
    if attempt := next_attempt(valid):
        return begin_attempt(valid, attempt)
    if hold := first_hold(valid):
        return wait(valid, hold)
    return converge(valid)


def finish(job: Observed, decided: Plan) -> Plan:
    """Add events, goodput and force deletions. An earlier operator's finalizer is removed first."""
    if (removal := finalizer_removal(job.stored)) is not None:
        return removal
    snapshot = job.snapshot
    stuck, wait = stuck_terminating(
        (*snapshot.pods, *snapshot.predecessors), job.now, snapshot.settings.force_delete_seconds
    )
    return msgspec.structs.replace(
        decided,
        status=add_goodput(job.stored, decided.status, job.now, snapshot.finding(Hang)),
        events=() if job.is_being_deleted or job.is_finished else tuple(_events(job, decided.status)),
        stages=(stuck, *decided.stages) if stuck else decided.stages,
        requeue_after_seconds=soonest(decided.requeue_after_seconds, wait),
        milestone=recovery.milestone(job, decided),
    )


def _events(job: Observed, new: PaddleJobStatus) -> Iterator[Event]:
    """Yield the events for a status change."""
    old, snapshot, spec = job.status, job.snapshot, job.stored.spec
    is_edited = old.observed_generation != job.stored.metadata.generation
    if is_edited:
        for alias in defaulting.aliases(spec):
            yield Event(EventType.WARNING, Reason.ALIAS_USED, str(alias))
        if idle := unlaunched_cards(job.spec):
            yield Event(EventType.WARNING, Reason.IDLE_ACCELERATORS, idle)
        if overridden := master_warning(job.spec):
            yield Event(EventType.WARNING, Reason.MASTER_OVERRIDDEN, overridden)
        for message in defaulting.ineffective_fields(spec):
            yield Event(EventType.WARNING, Reason.NO_EFFECT, message)
        # Local runs use another recorder.
        if spec.recorder and snapshot.recorder is None and snapshot.has_scheduler:
            yield Event(EventType.WARNING, Reason.NO_RECORDER, NO_RECORDER)
        yield from (Event(EventType.WARNING, Reason.NO_EFFECT, text) for text in _without_recorder(job))
    if (note := snapshot.recorder_note) and note in new.message and note not in old.message:
        yield Event(EventType.WARNING, Reason.NO_RECORDER, note)
    if new.phase is not old.phase and new.phase in status.CONDITION_PHASES:
        kind = EventType.WARNING if new.phase is Phase.FAILED else EventType.NORMAL
        yield Event(kind, str(new.phase), new.message)
    elif new.attempt != old.attempt:
        kind = EventType.NORMAL if new.phase is Phase.SCALING else EventType.WARNING
        yield Event(kind, new.reason, f"attempt {new.attempt}: {new.message}")
    elif new.reason in TROUBLE and new.message != old.message and (is_edited or not _is_known(old, new)):
        yield Event(EventType.WARNING, new.reason, new.message)


def _without_recorder(job: Observed) -> Iterator[str]:
    """Yield the fields that have no effect, because programs cannot be restarted in place here."""
    spec, has_recorder = job.stored.spec, recorder_of(job.stored, job.snapshot.recorder) is not None
    if spec.restart_policy.parked and not has_recorder:
        yield NOT_PARKED
    if spec.spares > 0 and not (job.snapshot.spares and has_recorder):
        yield NO_SPARES


def _is_known(old: PaddleJobStatus, new: PaddleJobStatus) -> bool:
    """Return whether only the pod counts in the message of an invalid spec have changed."""
    return new.reason == old.reason == Reason.INVALID_SPEC
