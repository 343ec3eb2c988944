"""Whether a job has succeeded."""

from __future__ import annotations

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase, Role, SuccessPolicy
from paddlejob.core.messages import PhaseReason, Verdict
from paddlejob.core.observed import Observed
from paddlejob.core.pod_set import PodSet


def success_verdict(job: Observed) -> Verdict | None:
    """Return the verdict if the workers that the success policy names have succeeded."""
    phase_reason = success(job.pods, job.trusted.spec.success_policy)
    return Verdict(phase_reason) if phase_reason else None


def success(pod_set: PodSet, policy: str) -> PhaseReason | None:
    """Return phase and message of a success.

    Only workers count: parameter servers and heter pods never end by themselves, and their exit codes after
    the last worker has succeeded do not matter.
    """
    workers = pod_set.desired(Role.WORKER)
    if policy == SuccessPolicy.WORKER_0:
        first = pod_set.worker(0)
        return _completed(f"{first} succeeded") if first in pod_set.finished else None
    done, omitted = len(pod_set.finished), sorted(map(str, pod_set.omitted))
    if not done or done + len(omitted) < workers:
        return None
    if omitted:
        return _completed(f"{done} of {workers} workers succeeded; {', '.join(omitted)} found no node")
    return _completed("the worker succeeded" if workers == 1 else f"all {workers} workers succeeded")


def _completed(message: str) -> PhaseReason:
    return PhaseReason(Phase.COMPLETED, Reason.WORKERS_SUCCEEDED, message)
