"""A job whose spec is invalid: nothing is created for it, but running pods still complete or fail it.

A spec may become invalid while its job trains: by an edit, or because an earlier operator was less strict.
The pods know nothing of that. Their success, their failure and the limits in time count as before, as far as
the fields that they are judged by can be believed:

- Replicas are those of the last world size, for the sizes in the spec may be what is wrong.
- An unknown `successPolicy` is treated as AllWorkers: when all have succeeded, so has any subset.
- Failures are held against a job only by rules that are in order, for a verdict is never taken back.
- A limit in time that is invalid is none.
- Pods stay after the end where nobody can tell what is to become of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import MAX_BACKOFF_LIMIT, MAX_REPLICAS, PaddleJob, Phase, RestartPolicy, RoleSpec
from paddlejob.api.validation.errors import FieldError, join
from paddlejob.core import status
from paddlejob.core.actions import Kind, Plan, soonest
from paddlejob.core.attempts import failures
from paddlejob.core.attempts.new_attempt import was_established
from paddlejob.core.messages import PhaseReason
from paddlejob.core.policy import deadline
from paddlejob.core.policy.cleanup import deletions

if TYPE_CHECKING:
    from paddlejob.core.observed import Observed

Errors = tuple[FieldError, ...]

_FAILURE_RULES = ("spec.backoffLimit", "spec.restartPolicy")
_LENIENT_RULES = {"backoff_limit": MAX_BACKOFF_LIMIT, "restart_policy": RestartPolicy()}
_LIMITS = {
    "spec.activeDeadlineSeconds": "active_deadline_seconds",
    "spec.startupDeadlineSeconds": "startup_deadline_seconds",
}


def report_invalid_spec(job: Observed) -> Plan:
    """Tell what is wrong. Pods of attempts that are over go; no other is touched, and none is created."""
    held = status.next_status(job.job, job.spec, job.pods, _phase_reason(job), job.now)
    time_left = deadline.seconds_left(msgspec.structs.replace(job.job, status=held), job.now)
    outdated = deletions(Kind.POD, (member.pod for member in job.pods.outdated))
    look_again = soonest(failures.look_again(job), time_left)
    return Plan(held, (outdated,) if outdated else (), requeue_after_seconds=look_again)


def _phase_reason(job: Observed) -> PhaseReason:
    """Say how the pods are and what bars new ones; without pods there is only the latter to say."""
    sentence = join(job.spec_errors)
    if not any(job.pods.active):
        # Whether to resume it is among what cannot be read.
        stays = job.job.undecodable and job.status.phase is Phase.SUSPENDED
        return PhaseReason(Phase.SUSPENDED if stays else Phase.PENDING, Reason.INVALID_SPEC, sentence)
    live = status.live_phase(job.snapshot, job.pods)
    happens = failures.what_happened(job) or live.message
    text = f"{happens}; no pod is created or replaced until this is corrected: {sentence}"
    return PhaseReason(live.phase, Reason.INVALID_SPEC, text)


def believed(job: PaddleJob, errors: Errors) -> PaddleJob:
    """Return the job with those fields that it can be judged by."""
    wrong = {error.field for error in errors}
    changes: dict[str, Any] = {name: None for field, name in _LIMITS.items() if field in wrong}
    changes |= _sizes(job)
    changes |= {} if has_failure_rules(job, errors) else _LENIENT_RULES
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **changes))


def has_failure_rules(job: PaddleJob, errors: Errors) -> bool:
    """Return whether the rules are in order by which failures are held against a job."""
    return not job.undecodable and not any(error.field.startswith(_FAILURE_RULES) for error in errors)


def _sizes(job: PaddleJob) -> dict[str, RoleSpec]:
    """Return the roles with the replicas that they have; more than there may be are not even counted."""
    written = {"ps": job.spec.ps, "worker": job.spec.worker, "heter": job.spec.heter}
    sizes = {role: each.replicas for role, each in written.items() if each}
    formed = job.status.world_size
    if formed is not None and was_established(job.status):
        sizes = {"ps": formed.ps, "worker": formed.worker, "heter": formed.heter}
    return {
        role: msgspec.structs.replace(written[role] or RoleSpec(), replicas=min(size, MAX_REPLICAS))
        for role, size in sizes.items()
    }
