"""Classifies how a pod ended: by its program, by the user's rules, or by the platform."""

from __future__ import annotations

import enum
import re
from datetime import datetime, timedelta

from paddlejob.api.pod import ContainerTerminated, PodStatus
from paddlejob.api.v1 import RestartPolicy
from paddlejob.core.attempts import known_errors
from paddlejob.core.pod_set import ObservedPod, ended_at, ending_of
from paddlejob.core.snapshot import Snapshot

PLANNED_EXIT_CODES = frozenset({15, 101, 143})
"""Paddle's launcher after SIGTERM, Fleet's elastic restart, and a process after SIGTERM.

These exits ask for a restart. But a Rust program that panics exits with 101 too, and one whose liveness probe
fails exits with 143. They count if they repeat without progress.
"""

REPORT_DELAY = timedelta(seconds=10)
"""How long a kubelet may take to report an end; a larger difference comes from a wrong clock."""

_OUTSIDE_KILLS = frozenset({137, 247})
"""SIGKILL of a process, and of a child of Paddle's launcher. A kill is a cause; an abort is a consequence."""

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
_OWN_DEADLINE = "DeadlineExceeded"
"""The activeDeadlineSeconds of the pod has passed; the exit code after SIGTERM does not matter."""

_NODE_PRESSURE = "The node "
"""Begins each kubelet message about a node that is short of a resource.

Since 1.26 kubelets also set the condition DisruptionTarget for these evictions. A pod that is evicted without
either exceeded a limit in its spec.
"""

_LOST = frozenset({("ContainerStatusUnknown", 137), ("Unknown", 255)})
"""Reason and exit code that kubelet and containerd report for a container lost in a reboot."""

_START_ERRORS = frozenset({"StartError", "ContainerCannotRun"})
_COMMAND_ERROR = re.compile(
    r'container process(?: caused)?:? "?(?:error during container init: )?exec: '  # runc
    r"|executable file `[^`]*` not found|the path `[^`]*` (?:exists but it )?is not"  # crun
    r"|exec container process `"
    r"|error finding executable "  # gVisor
    r"|create shim task: (?:exec: |the file \S+ was not found)"  # Kata
)
"""The container runtime names the command: it is missing or not executable, on every node."""
_TEMPLATE_ERROR = re.compile(r"container init was OOM-killed|chdir to cwd|: not a directory")
"""The template has too low a memory limit, a missing workingDir, or a mount over a file."""


class Cause(enum.Enum):
    """How a failure counts."""

    PERMANENT = "permanent"
    RETRYABLE = "retryable"
    PLANNED = "planned"
    """Counted only if it repeats without progress."""
    IGNORED = "ignored"
    NODE = "node"
    """The node rejected the pod or lost its containers: delayed, and the node is suspected.

    Counted only if a start error repeats in a job that has never run.
    """


def cause_of(member: ObservedPod, policy: RestartPolicy) -> Cause:
    """Return how a failed pod counts: by the platform, the user's rules, known errors, or defaults."""
    if by_platform := platform_cause(member):
        return by_platform
    ending = ending_of(member)
    if ending is None:
        return Cause.RETRYABLE
    if by_rule := rule_for(ending.exit_code, policy):
        return by_rule
    if ending.exit_code and (known := known_errors.from_termination_message(ending.message)):
        return Cause.PERMANENT if known.is_final else Cause.RETRYABLE
    return Cause.RETRYABLE if _exceeded_own_limit(member.pod.status) else _by_default(ending)


def platform_cause(member: ObservedPod) -> Cause | None:
    """Return how a failure of the platform counts, None if the program or a limit of the pod ended it."""
    status, ending = member.pod.status, ending_of(member)
    if any(one.type == "DisruptionTarget" and one.status == "True" for one in status.conditions):
        return Cause.IGNORED
    if _exceeded_own_limit(status):
        return None
    if ending is None:  # rejected by the kubelet, such as with UnexpectedAdmissionError or OutOfcpu
        return Cause.NODE if status.phase == "Failed" else None
    if status.reason in _DISRUPTIONS:
        return Cause.IGNORED
    return Cause.NODE if is_node_fault(ending) else None


def _exceeded_own_limit(status: PodStatus) -> bool:
    """Return whether the pod exceeded a limit in its spec: on time, or on local storage."""
    is_pressure = _NODE_PRESSURE in status.message
    return status.reason == _OWN_DEADLINE or (status.reason == "Evicted" and not is_pressure)


def is_node_fault(ending: ContainerTerminated) -> bool:
    """Return whether the node lost a container, or could not start it (driver, mount, full disk)."""
    is_own = _TEMPLATE_ERROR.search(ending.message) or _names_command(ending)
    is_lost = (ending.reason, ending.exit_code) in _LOST
    return is_lost or (ending.reason in _START_ERRORS and not is_own)


def is_start_error(member: ObservedPod) -> bool:
    """Return whether the container runtime could not start the decisive container of a pod."""
    ending = ending_of(member)
    return ending is not None and ending.reason in _START_ERRORS


def _names_command(ending: ContainerTerminated) -> bool:
    return _COMMAND_ERROR.search(ending.message) is not None


def rule_for(code: int, policy: RestartPolicy) -> Cause | None:
    """Return how the job's exit code lists classify an exit code, None if it is in none of them."""
    if code in policy.permanent_exit_codes:
        return Cause.PERMANENT
    if code in policy.retryable_exit_codes:
        return Cause.RETRYABLE
    return Cause.IGNORED if code in policy.ignored_exit_codes else None


def _by_default(ending: ContainerTerminated) -> Cause:
    if ending.exit_code in PLANNED_EXIT_CODES:
        return Cause.PLANNED
    cannot_run = ending.reason in _START_ERRORS and _names_command(ending)
    return Cause.PERMANENT if cannot_run or 0 < ending.exit_code < 128 else Cause.RETRYABLE


def is_outside_kill(code: int) -> bool:
    """Return whether an exit code means SIGKILL, which says nothing about the program."""
    return code in _OUTSIDE_KILLS


def first_failure(failed: list[ObservedPod], policy: RestartPolicy, snapshot: Snapshot) -> ObservedPod:
    """Return the pod whose failure explains the others.

    Kubelets report whole seconds, and peers may fail within the same second. In a tie, a kill from outside
    comes before an error of the program, and an error before an abort, with which Paddle ends when a peer is
    gone. An error about a lost peer explains nothing, however early it is.
    """

    def order(member: ObservedPod) -> tuple[bool, datetime, int]:
        ending, ended = ending_of(member), end_time(member, snapshot)
        code = ending.exit_code if ending else 0
        cause = cause_of(member, policy)
        lost_peer = known_errors.has_lost_peer(member.pod)
        if cause in (Cause.PLANNED, Cause.IGNORED, Cause.NODE) or is_outside_kill(code):
            return lost_peer, ended, 0
        return lost_peer, ended, 1 if cause is Cause.PERMANENT else 2

    return min(failed, key=order)


def end_time(member: ObservedPod, snapshot: Snapshot) -> datetime:
    """Return when a pod ended by its kubelet's clock, within REPORT_DELAY of when the end was seen."""
    seen = (snapshot.now - timedelta(seconds=snapshot.seconds_in_state(member.pod))).replace(microsecond=0)
    return min(seen, max(seen - REPORT_DELAY, ended_at(member) or seen))
