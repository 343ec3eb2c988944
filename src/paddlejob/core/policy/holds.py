"""Obstacles that a healthy job waits for before more pods are created."""

from __future__ import annotations

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase
from paddlejob.core import network, status
from paddlejob.core.attempts import backoff
from paddlejob.core.attempts.processes import STOP_SECONDS, is_outdated
from paddlejob.core.messages import PhaseReason
from paddlejob.core.network import with_ipv6_warning
from paddlejob.core.observed import ValidJob
from paddlejob.core.paddle_env import JobContext
from paddlejob.core.pod_set import ObservedPod, PodSet

NO_PORT_RETRY_SECONDS = 30.0


class Hold(msgspec.Struct, frozen=True):
    """An obstacle that a job waits for, as its status reports it."""

    phase_reason: PhaseReason
    seconds: float | None = None
    """When to check again even if nothing changes."""
    may_prepare: bool = True
    """Whether work unrelated to new pods continues, such as deleting excess pods and requesting the gang."""


def no_host_port(job: ValidJob) -> Hold | None:
    """Wait for a free block of host ports."""
    if job.host_port is not None:
        return None
    sentence = network.no_port_sentence(job.snapshot)
    phase_reason = PhaseReason(Phase.PENDING, Reason.NO_HOST_PORT, sentence)
    return Hold(phase_reason, NO_PORT_RETRY_SECONDS, may_prepare=False)


def unusable_address(job: ValidJob) -> Hold | None:
    """Keep pods from starting with an address that PaddlePaddle cannot read or that two pods share."""
    sentence = _ipv6_address(job.context, job.pods) or _shared_address(job.context, job.pods)
    phase_reason = PhaseReason(Phase.PENDING, Reason.INVALID_SPEC, sentence)
    return Hold(phase_reason, may_prepare=False) if sentence else None


def _ipv6_address(context: JobContext, pod_set: PodSet) -> str:
    """Return why a pod with an IPv6 address must not start, empty if there is none.

    Under `paddle.distributed.launch` each worker would consider itself the only node: all would train alone,
    and the job would complete as if nothing were wrong.
    """
    if context.network.by_name or context.spec.rendezvous is not None or len(pod_set.wanted) == 1:
        return ""
    for member in pod_set.active:
        address = member.pod.status.pod_ip
        if ":" in address and not member.has_started:
            return (
                f"spec.intranet is {context.spec.intranet}, but pod {member.pod.metadata.name} has the IPv6 "
                f"address {address}, which PaddlePaddle cannot read; "
                "recreate the job with intranet: Service"
            )
    return ""


def _shared_address(context: JobContext, pod_set: PodSet) -> str:
    """Return why two pods with the same address must not start, empty if all addresses differ.

    All pods of a job listen on the same port. Pods that have started are left alone.
    """
    if context.knows_hosts_beforehand:
        return ""
    first: dict[str, ObservedPod] = {}
    for member in pod_set.active:
        address = member.pod.status.pod_ip
        if not address or member.replica in pod_set.finished:
            continue
        other = first.setdefault(address, member)
        if other is not member and not (other.has_started and member.has_started):
            return (
                f"pods {other.pod.metadata.name} and {member.pod.metadata.name} have the same address "
                f"{address} and would listen on the same port {context.port}; "
                "recreate the job with intranet: Host, which keeps them on different nodes"
            )
    return ""


def restart_delay(job: ValidJob) -> Hold | None:
    """Wait until missing pods may be created again."""
    seconds = backoff.seconds_until_retry(job.trusted, job.now)
    if not seconds or not (job.pods.missing or _awaits_order(job)):
        return None
    phase_reason = status.live_phase(
        job.snapshot, job.pods, delayed=True, gang_waits_for=job.gang.blocked_by(job.pods)
    )
    return Hold(with_ipv6_warning(phase_reason, job.pods), seconds)


def _awaits_order(job: ValidJob) -> bool:
    """Return whether programs have ended and wait for the order to restart."""
    down = ((pod, job.snapshot.process(pod)) for pod in job.snapshot.pods)
    return any(each is not None and each.is_down and is_outdated(pod, each, job.status) for pod, each in down)


def old_programs(job: ValidJob) -> Hold | None:
    """Wait until the programs of earlier attempts have ended."""
    if not job.stopping:
        return None
    phase_reason = status.live_phase(job.snapshot, job.pods)
    left = STOP_SECONDS - job.snapshot.attempt_seconds
    return Hold(phase_reason, left if left > 0 else None)


def gang_admission(job: ValidJob) -> Hold | None:
    """Wait for the scheduler to admit the job's gang."""
    if job.gang.admitted:
        return None
    waits_for = job.gang.blocked_by(job.pods)
    phase_reason = status.live_phase(job.snapshot, job.pods, gang_waits_for=waits_for)
    return Hold(with_ipv6_warning(phase_reason, job.pods))


HOLDS = (no_host_port, unusable_address, restart_delay, old_programs, gang_admission)
"""In order: the first that applies is reported."""


def first_hold(job: ValidJob) -> Hold | None:
    """Return the first obstacle that the job waits for, None if there is none."""
    return next(filter(None, (find(job) for find in HOLDS)), None)
