"""Classifies the failure of a pod: permanent, retryable, or not to be counted."""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

from paddlejob.api.pod import ContainerTerminated
from paddlejob.api.v1 import RestartPolicy
from paddlejob.core.attempts import known_errors
from paddlejob.core.pod_set import ObservedPod, ended_at, ending_of
from paddlejob.core.snapshot import Snapshot

PLANNED_EXIT_CODES = frozenset({15, 101, 143})
"""Paddle's launcher after SIGTERM, Fleet's elastic restart, and a process after SIGTERM.

Somebody wanted the restart, so nobody is to blame; but a Rust program that panics exits with 101 too, and one
whose liveness standby_pod fails with 143. Where it happens again and again without progress, it counts.
"""

REPORT_DELAY = timedelta(seconds=10)
"""How long a kubelet may take to report an end; a clock that says more than that is wrong."""

_OUTSIDE_KILLS = frozenset({137, 247})
"""SIGKILL of a process, and of a child of Paddle's launcher: a cause, where an abort is a consequence."""

_DISRUPTIONS = frozenset(
    {
        "Evicted",
        "Preempting",
        "Preempted",
        "NodeLost",
        "NodeShutdown",
        "Shutdown",
        "Terminated",
        "NodeAffinity",
    }
)
_NEVER_STARTED = frozenset({"StartError", "ContainerCannotRun"})
"""The command does not exist or cannot be run: it will not next time either."""

_OWN_DEADLINE = "DeadlineExceeded"
"""The pod's own activeDeadlineSeconds has passed; that its containers got SIGTERM then excuses nothing."""

_OWN_FAULT = "exceeds"
"""The kubelet evicts a pod that exceeds its own limits with this word; that is not the platform's doing."""


class Cause(enum.Enum):
    """How a failure counts."""

    PERMANENT = "permanent"
    RETRYABLE = "retryable"
    PLANNED = "planned"
    """Nobody's fault, unless it goes on."""
    IGNORED = "ignored"


def cause_of(member: ObservedPod, policy: RestartPolicy) -> Cause:
    """Return how a failed pod counts: the platform's doing, the user's rules, known errors, defaults."""
    if was_disrupted(member):
        return Cause.IGNORED
    ending = ending_of(member)
    if ending is None:
        return Cause.RETRYABLE
    if by_rule := rule_for(ending.exit_code, policy):
        return by_rule
    if ending.exit_code and (known := known_errors.from_last_words(ending.message)):
        return Cause.PERMANENT if known.is_final else Cause.RETRYABLE
    return Cause.RETRYABLE if member.pod.status.reason == _OWN_DEADLINE else _by_default(ending)


def rule_for(code: int, policy: RestartPolicy) -> Cause | None:
    """Return what the job's own rules say of an exit code."""
    if code in policy.permanent_exit_codes:
        return Cause.PERMANENT
    if code in policy.retryable_exit_codes:
        return Cause.RETRYABLE
    return Cause.IGNORED if code in policy.ignored_exit_codes else None


def _by_default(ending: ContainerTerminated) -> Cause:
    if ending.exit_code in PLANNED_EXIT_CODES:
        return Cause.PLANNED
    if ending.reason in _NEVER_STARTED or 0 < ending.exit_code < 128:
        return Cause.PERMANENT
    return Cause.RETRYABLE


def is_outside_kill(code: int) -> bool:
    """Return whether an exit code is that of a kill, which tells nothing about the program."""
    return code in _OUTSIDE_KILLS


def was_disrupted(member: ObservedPod) -> bool:
    """Return whether the platform took the pod away: eviction, preemption, drain, a node that went."""
    status = member.pod.status
    if _OWN_FAULT in status.message:
        return False
    disrupted = any(one.type == "DisruptionTarget" and one.status == "True" for one in status.conditions)
    return disrupted or status.reason in _DISRUPTIONS


def first_failure(failed: list[ObservedPod], policy: RestartPolicy, snapshot: Snapshot) -> ObservedPod:
    """Return the pod whose failure explains the others.

    Kubelets report whole seconds, in which peers may follow the first. Among equals a kill from outside goes
    before an error of the program, and that before an abort, which is how Paddle ends when a peer is gone.
    """

    def order(member: ObservedPod) -> tuple[datetime, int]:
        ending = ending_of(member)
        code = ending.exit_code if ending else 0
        cause = cause_of(member, policy)
        if cause in (Cause.PLANNED, Cause.IGNORED) or is_outside_kill(code):
            return believed_end(member, snapshot), 0
        return believed_end(member, snapshot), 1 if cause is Cause.PERMANENT else 2

    return min(failed, key=order)


def believed_end(member: ObservedPod, snapshot: Snapshot) -> datetime:
    """Return when a pod ended: by its kubelet's clock, as far as that agrees with when the end was seen."""
    seen = (snapshot.now - timedelta(seconds=snapshot.seconds_in_state(member.pod))).replace(microsecond=0)
    return min(seen, max(seen - REPORT_DELAY, ended_at(member) or seen))
