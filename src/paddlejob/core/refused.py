"""A job whose spec is refused: nothing is made for it, and what runs is judged all the same.

A spec may become invalid while its job trains: by an edit, or because an earlier operator was less strict.
The pods know nothing of that. Their success, their failure and the limits in time count as before, as far as
the fields that they are judged by can be believed:

- Replicas are those of the last world size, for the sizes in the spec may be what is wrong.
- A `successPolicy` that means nothing is AllWorkers: when all are done, so is whoever was meant.
- Failures are held against a job only by rules that are in order, for a verdict is never taken back.
- A limit in time that is refused is none.
- Pods stay after the end where nobody can tell what is to become of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from paddlejob.api import defaulting
from paddlejob.api.names import Reason
from paddlejob.api.v1 import (
    MAX_BACKOFF_LIMIT,
    MAX_REPLICAS,
    PaddleJob,
    PaddleJobSpec,
    Phase,
    RestartPolicy,
    RoleSpec,
)
from paddlejob.api.validation.errors import FieldError, join
from paddlejob.core import endings, status
from paddlejob.core.actions import Kind, Plan
from paddlejob.core.phase_reason import PhaseReason
from paddlejob.core.pod_set import Attempts, PodSet, pod_set_of
from paddlejob.core.policy import deadline, elastic
from paddlejob.core.policy.cleanup import deletions
from paddlejob.core.policy.restart import Response, after_failures
from paddlejob.core.policy.success import success
from paddlejob.core.policy.world_size import was_formed
from paddlejob.core.snapshot import Snapshot

Refusals = tuple[FieldError, ...]

_FAILURE_RULES = ("spec.backoffLimit", "spec.restartPolicy")
_LENIENT_RULES = {"backoff_limit": MAX_BACKOFF_LIMIT, "restart_policy": RestartPolicy()}
_LIMITS = {
    "spec.activeDeadlineSeconds": "active_deadline_seconds",
    "spec.startupDeadlineSeconds": "startup_deadline_seconds",
}


def plan_invalid_spec(refused: Snapshot, refusals: Refusals) -> Plan:
    """Judge what runs, and tell what is wrong. Pods of attempts that are over go; no other is touched."""
    snapshot = msgspec.structs.replace(refused, job=_believed(refused, refusals))
    job, now = snapshot.job, snapshot.now
    spec = elastic.with_workers(defaulting.effective_of(job), job.status.workers)
    pod_set = pod_set_of(job.name, spec.roles, snapshot.pods, Attempts.of(job.status))
    sentence = join(refusals)
    if job.spec.suspend:
        return endings.suspend(snapshot, spec, pod_set, obstacle=sentence)
    response = after_failures(snapshot, spec, pod_set)
    verdict = success(pod_set, job.spec.success_policy) or deadline.time_is_up(job, now)
    if verdict is None and response.verdict is not None and _failures_count(job, refusals):
        return endings.end(snapshot, spec, pod_set, response.verdict, response.failure)
    if verdict is not None:
        return endings.end(snapshot, spec, pod_set, verdict)
    phase_reason = _phase_reason(snapshot, pod_set, response, sentence)
    held = status.next_status(job, spec, pod_set, phase_reason, now)
    time_left = deadline.seconds_left(msgspec.structs.replace(job, status=held), now)
    waits = [wait for wait in (response.look_again_in_seconds, time_left) if wait is not None]
    outdated = deletions(Kind.POD, (member.pod for member in pod_set.outdated))
    return Plan(held, (outdated,) if outdated else (), requeue_after_seconds=min(waits, default=None))


def _phase_reason(snapshot: Snapshot, pod_set: PodSet, response: Response, sentence: str) -> PhaseReason:
    """Say how the pods are and what bars new ones; without pods there is only the latter to say."""
    if not any(pod_set.active):
        return PhaseReason(Phase.PENDING, Reason.INVALID_SPEC, sentence)
    live, failure = status.live_phase(snapshot, pod_set), response.verdict or response.new_attempt
    happens = failure.message if failure else live.message
    text = f"{happens}; no pod is created or replaced until this is corrected: {sentence}"
    return PhaseReason(live.phase, Reason.INVALID_SPEC, text)


def _believed(snapshot: Snapshot, refusals: Refusals) -> PaddleJob:
    """Return the job with what can be judged by."""
    job, wrong = snapshot.job, {refusal.field for refusal in refusals}
    changes: dict[str, Any] = {name: None for field, name in _LIMITS.items() if field in wrong}
    changes |= _sizes(snapshot, job.spec)
    changes |= {} if _failures_count(job, refusals) else _LENIENT_RULES
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **changes))


def _sizes(snapshot: Snapshot, spec: PaddleJobSpec) -> dict[str, RoleSpec]:
    """Return the roles with the replicas that they have; more than there may be are not even counted."""
    written = {"ps": spec.ps, "worker": spec.worker, "heter": spec.heter}
    sizes = {role: each.replicas for role, each in written.items() if each}
    formed = snapshot.job.status.world_size
    if formed is not None and was_formed(snapshot):
        sizes = {"ps": formed.ps, "worker": formed.worker, "heter": formed.heter}
    return {
        role: msgspec.structs.replace(written[role] or RoleSpec(), replicas=min(size, MAX_REPLICAS))
        for role, size in sizes.items()
    }


def _failures_count(job: PaddleJob, refusals: Refusals) -> bool:
    return not job.undecodable and not any(each.field.startswith(_FAILURE_RULES) for each in refusals)
