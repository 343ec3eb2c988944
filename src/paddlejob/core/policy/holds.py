"""What a job waits for before more pods are created, while nothing is wrong with its pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase
from paddlejob.core import network, status
from paddlejob.core.attempts import backoff
from paddlejob.core.messages import PhaseReason
from paddlejob.core.network import with_ipv6_warning

if TYPE_CHECKING:
    from paddlejob.core.observed import Observed

NO_PORT_RETRY_SECONDS = 30.0


class Hold(msgspec.Struct, frozen=True):
    """What a job waits for, in the words of its status."""

    phase_reason: PhaseReason
    seconds: float | None = None
    """After which time alone may change it."""
    may_prepare: bool = True
    """Whether what does not concern new pods goes on: pods that are too many go, a gang is asked for."""


def no_host_port(job: Observed) -> Hold | None:
    """Find that no block of host ports is free for the job."""
    if job.host_port is not None:
        return None
    sentence = network.no_port_sentence(job.given)
    phase_reason = PhaseReason(Phase.PENDING, Reason.NO_HOST_PORT, sentence)
    return Hold(phase_reason, NO_PORT_RETRY_SECONDS, may_prepare=False)


def unusable_address(job: Observed) -> Hold | None:
    """Find an address that PaddlePaddle misreads or that two pods share; pods with it must not start."""
    sentence = network.unreadable_address(job.context, job.pods) or network.shared_address(
        job.context, job.pods
    )
    phase_reason = PhaseReason(Phase.PENDING, Reason.INVALID_SPEC, sentence)
    return Hold(phase_reason, may_prepare=False) if sentence else None


def delayed(job: Observed) -> Hold | None:
    """Find that pods are missing and that it is too early to create them again."""
    seconds = backoff.seconds_until_retry(job.job, job.now)
    if not seconds or not job.pods.missing:
        return None
    phase_reason = status.live_phase(
        job.snapshot, job.pods, delayed=True, gang_waits_for=job.gang.blocked_by(job.pods)
    )
    return Hold(with_ipv6_warning(phase_reason, job.pods), seconds)


def not_admitted(job: Observed) -> Hold | None:
    """Find that the scheduler of the job's gang has not let it in yet."""
    if job.gang.admitted:
        return None
    waits_for = job.gang.blocked_by(job.pods)
    phase_reason = status.live_phase(job.snapshot, job.pods, gang_waits_for=waits_for)
    return Hold(with_ipv6_warning(phase_reason, job.pods))


HOLDS = (no_host_port, unusable_address, delayed, not_admitted)
"""In order: the first that applies is reported."""


def first_hold(job: Observed) -> Hold | None:
    """Return what the job waits for, None when it may be brought further."""
    return next(filter(None, (find(job) for find in HOLDS)), None)
