"""A job with an invalid spec: no pods are created, but running pods still complete or fail it."""

from __future__ import annotations

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase
from paddlejob.api.validation.errors import join
from paddlejob.core import status
from paddlejob.core.actions import Kind, Plan, soonest
from paddlejob.core.attempts import failures
from paddlejob.core.messages import PhaseReason
from paddlejob.core.observed import Observed
from paddlejob.core.policy import deadline
from paddlejob.core.policy.cleanup import deletions


def report_invalid_spec(job: Observed) -> Plan:
    """Report the errors. Only pods of earlier attempts are deleted, and none are created."""
    held = status.next_status(job.trusted, job.spec, job.pods, _phase_reason(job), job.now)
    time_left = deadline.seconds_left(msgspec.structs.replace(job.trusted, status=held), job.now)
    outdated = deletions(Kind.POD, (member.pod for member in job.pods.outdated))
    requeue_after = soonest(failures.seconds_to_failure(job), time_left)
    return Plan(held, (outdated,) if outdated else (), requeue_after_seconds=requeue_after)


def _phase_reason(job: Observed) -> PhaseReason:
    """Return the state of the pods and the errors; only the errors if there are no pods."""
    sentence = join(job.spec_errors)
    if not any(job.pods.active):
        # A spec that cannot be decoded does not show whether to resume the job.
        stays = job.trusted.undecodable and job.status.phase is Phase.SUSPENDED
        return PhaseReason(Phase.SUSPENDED if stays else Phase.PENDING, Reason.INVALID_SPEC, sentence)
    live = status.live_phase(job.snapshot, job.pods)
    happens = failures.describe_failure(job) or live.message
    text = f"{happens}; no pod is created or replaced until this is corrected: {sentence}"
    return PhaseReason(live.phase, Reason.INVALID_SPEC, text)
