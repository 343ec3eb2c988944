"""Which pods have failed, and whether the failure ends or restarts the job.

1. In place: the kubelet restarts a container; the operator does nothing.
2. Pod: a worker that its peers do not depend on is replaced alone.
3. Job: if one lost pod breaks all others, all are replaced and resume from their checkpoint.

Pods depend on each other in collective jobs. In parameter server jobs they depend on the servers, and with
gloo also on the other workers: a worker that rejoins late blocks on a barrier that has already passed.
"""

from __future__ import annotations

import re

import msgspec

from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.names import Reason
from paddlejob.api.pod import ContainerTerminated
from paddlejob.api.v1 import Failure, PaddleJobStatus, Phase, ProgressMark, Role
from paddlejob.core import explain
from paddlejob.core.accelerators import idle_accelerators
from paddlejob.core.attempts import backoff, known_errors
from paddlejob.core.attempts.causes import (
    PLANNED_EXIT_CODES,
    Cause,
    cause_of,
    end_time,
    first_failure,
    is_node_fault,
    is_outside_kill,
    is_start_error,
    platform_cause,
    rule_for,
)
from paddlejob.core.attempts.drift import lost_peers
from paddlejob.core.attempts.known_errors import KnownError
from paddlejob.core.attempts.new_attempt import NewAttempt, depends_on_peers
from paddlejob.core.messages import PhaseReason, Verdict
from paddlejob.core.network import with_ipv6_warning
from paddlejob.core.observed import Observed
from paddlejob.core.pod_set import ObservedPod, PodState, ending_of
from paddlejob.core.snapshot import Snapshot
from paddlejob.text import MAX_TEXT_LENGTH
from paddlejob.training import steps
from paddlejob.training.findings import Awaited

_KUBELETS_REASONS = ("ContainersNotReady", "ReadinessGatesNotReady", "UnknownContainerStatuses")
"""Reasons for an unready pod that come from its kubelet, which is therefore reachable."""

_LONG_BACK_OFF = re.compile(r"back-off \d+m")
"""Matches the message of a container that waits for a minute or more, after several crashes in a row.

A kubelet resets its back-off after a run of 10 minutes.
"""

MAX_RESTARTS_PER_LIMIT = 10
"""Maximum number of restarts in place in the life of a pod, as a multiple of `backoffLimit`."""


def failure_verdict(job: Observed) -> Verdict | None:
    """Return the verdict if a failure ends the job."""
    outcome = _judge(job) if job.has_failure_rules else None
    if not isinstance(outcome, Verdict):
        return None
    return msgspec.structs.replace(outcome, phase_reason=with_ipv6_warning(outcome.phase_reason, job.pods))


def restart_after_failure(job: Observed) -> NewAttempt | None:
    """Return a new attempt if a failure restarts the job."""
    outcome = _judge(job)
    return outcome if isinstance(outcome, NewAttempt) else None


def describe_failure(job: Observed) -> str:
    """Return the failure of the pods in words, empty if there is none."""
    outcome = _judge(job)
    if isinstance(outcome, Verdict):
        return outcome.phase_reason.message
    return outcome.message if outcome else ""


def seconds_to_failure(job: Observed) -> float | None:
    """Return when a pod that may have failed will count as failed."""
    return _failed_pods(job)[1]


def _judge(job: Observed) -> Verdict | NewAttempt | None:
    """Judge the failed pods, unless a deleted peer that they depend on is the cause."""
    broken, _ = _failed_pods(job)
    if not broken or lost_peers(job):
        return None
    return _after_failure(job.snapshot, job.spec, broken)


def _failed_pods(job: Observed) -> tuple[list[ObservedPod], float | None]:
    """Return the pods that have failed, and the seconds until others may count as failed.

    A server that exited with code 0 has failed too unless the workers end shortly after: Paddle's server
    exits with 0 when it cannot listen, and also when a worker stops it just before its own end.

    No pod counts as failed until the phases of all ended peers are known: a peer may be the cause.
    """
    snapshot, pod_set, awaits_peer = job.snapshot, job.pods, False
    policy, grace = snapshot.job.spec.restart_policy, snapshot.settings.server_exit_grace_seconds
    broken, waits = [], list(snapshot.seconds_to_cause().values())
    for member in pod_set.active:
        if member.replica in pod_set.finished:
            continue
        left = snapshot.seconds_to_settle(member.pod)
        if left > 0:
            waits.append(left)
            awaits_peer = awaits_peer or depends_on_peers(job.spec, member.replica.role)
            continue
        if member.state is PodState.SUCCEEDED and member.replica.role is not Role.WORKER:
            left = grace - snapshot.seconds_in_state(member.pod)
        elif _is_on_silent_node(member):
            left = policy.node_lost_seconds - snapshot.seconds_in_state(member.pod)
        elif member.state is not PodState.FAILED and not _exceeds_restarts(snapshot, member):
            continue
        if left > 0:
            waits.append(left)
        else:
            broken.append(member)
    return [] if awaits_peer else broken, min(waits, default=None)


def _is_on_silent_node(member: ObservedPod) -> bool:
    """Return whether the node is unreachable: the node controller set Ready=False and nothing else changed.

    A kubelet that finds a pod unready also gives a reason, or sets ContainersReady=False.
    """
    if member.state not in (PodState.RUNNING, PodState.UNKNOWN):
        return False
    conditions = {condition.type: condition for condition in member.pod.status.conditions}
    ready, containers = conditions.get("Ready"), conditions.get("ContainersReady")
    if ready is None or ready.status == "True":
        return False
    is_kubelets = ready.reason in _KUBELETS_REASONS or (
        containers is not None and containers.status != "True"
    )
    return not (is_kubelets and member.state is PodState.RUNNING)


def _exceeds_restarts(snapshot: Snapshot, member: ObservedPod) -> bool:
    """Return whether a container was restarted in place more often than `backoffLimit` allows.

    Months may lie between restarts, so only consecutive crashes count. If no steps show progress, 10 times
    as many crashes in total count too. A running container is not judged.
    """
    container, limit = member.training, snapshot.job.spec.backoff_limit
    if container is None or _last_crash(member) is None or container.restart_count <= limit:
        return False
    waiting = container.state.waiting
    if waiting is not None and _LONG_BACK_OFF.match(waiting.message):
        return True
    is_beyond = container.restart_count > MAX_RESTARTS_PER_LIMIT * max(1, limit)
    return is_beyond and not steps.knows_steps(snapshot.job.status)


def _last_crash(member: ObservedPod) -> ContainerTerminated | None:
    """Return the last end of a training container that its kubelet restarts, None while it runs."""
    container, has_ended = member.training, member.state in (PodState.FAILED, PodState.SUCCEEDED)
    if container is None or has_ended or container.state.running is not None:
        return None
    return container.state.terminated or container.last_state.terminated


def _after_failure(
    snapshot: Snapshot, spec: EffectiveSpec, broken: list[ObservedPod]
) -> Verdict | NewAttempt:
    policy, status = snapshot.job.spec.restart_policy, snapshot.job.status
    first = first_failure(broken, policy, snapshot)
    what = _what_happened(snapshot, first)
    cause = _cause(snapshot, first)
    all_pods = any(depends_on_peers(spec, member.replica.role) for member in broken)
    in_a_row = backoff.restarts_in_a_row(status, snapshot.now) + 1
    is_habit = backoff.restarts_each(in_a_row, snapshot.job, all_pods=all_pods) > backoff.EARLY_RESTARTS
    # If no container starts, the template may be at fault. A job that has run never ends because of a node.
    never_started = cause is Cause.NODE and is_start_error(first) and status.start_time is None
    is_suspect = cause is Cause.PLANNED or never_started
    counted = cause is Cause.RETRYABLE or (is_suspect and is_habit)
    failure = _failure(snapshot, first, what, counted=counted)
    if cause is Cause.PERMANENT:
        named = _known_error(snapshot, first)
        return Verdict(PhaseReason(Phase.FAILED, named.reason if named else _reason(first), what), failure)
    limit = backoff.progress_limit(snapshot.job)
    is_exhausted = not limit and _exceeds_restarts(snapshot, first)
    if counted and (is_exhausted or not backoff.has_restarts_left(snapshot.job)):
        why = Reason.NO_PROGRESS if limit else Reason.BACKOFF_LIMIT_EXCEEDED
        sentence = _no_progress(what, status, limit) if limit else _gave_up(snapshot, first)
        return Verdict(PhaseReason(Phase.FAILED, why, sentence), failure)
    reason = Reason.RESTARTING if all_pods else Reason.REPLACED_POD
    return NewAttempt(
        Phase.RESTARTING,
        reason,
        what,
        all_pods=all_pods,
        to_delete=tuple(broken),
        failure=failure,
        blames_node=cause is Cause.NODE,
    )


def _gave_up(snapshot: Snapshot, first: ObservedPod) -> str:
    """Return the failure and the number of restarts, which the text of a crash in place has already."""
    restarts, limit = snapshot.job.status.restarts, snapshot.job.spec.backoff_limit
    tries = (
        ""
        if _exceeds_restarts(snapshot, first)
        else f" after {restarts} restart{'' if restarts == 1 else 's'}"
    )
    return f"{_what_happened(snapshot, first)}; gave up{tries} (backoffLimit {limit})"


def _no_progress(what: str, status: PaddleJobStatus, limit: int) -> str:
    mark = status.progress_mark or ProgressMark()
    where = f"epoch {mark.epoch} step {mark.step}" if mark.epoch else f"step {mark.step}"
    times = "1 restart" if limit == 1 else f"{limit} restarts"
    return f"{what}; no progress beyond {where} in {times} (noProgressLimit {limit})"


def _known_error(snapshot: Snapshot, member: ObservedPod) -> KnownError | None:
    """Return the known error that a pod ended with, from its termination message or the job's last loss.

    The loss does not explain an exit that was caused from outside or that the job's own rules cover.
    """
    ending = ending_of(member)
    if member.state is not PodState.FAILED or ending is None or platform_cause(member):
        return None
    if not ending.exit_code or rule_for(ending.exit_code, snapshot.job.spec.restart_policy):
        return None
    named = known_errors.from_termination_message(ending.message)
    if named is not None and named is not known_errors.PEER_LOST:
        return named
    by_itself = ending.exit_code not in PLANNED_EXIT_CODES and not is_outside_kill(ending.exit_code)
    return (known_errors.from_loss(snapshot.job.status) if by_itself else None) or named


def _failure(snapshot: Snapshot, member: ObservedPod, what: str, *, counted: bool) -> Failure:
    ending, named = ending_of(member) or _last_crash(member), _known_error(snapshot, member)
    usual = member.pod.status.reason or (ending.reason if ending else "") or _reason(member)
    return Failure(
        attempt=snapshot.job.status.attempt,
        pod=member.pod.metadata.name,
        reason=named.reason if named else usual,
        exit_code=ending.exit_code if ending else 0,
        message=what,
        time=end_time(member, snapshot),
        counted=counted,
    )


def _cause(snapshot: Snapshot, member: ObservedPod) -> Cause:
    cause = _cause_in_cluster(snapshot, member)
    # A local run has only this machine, which would fail again.
    return Cause.PERMANENT if cause is Cause.NODE and not snapshot.has_scheduler else cause


def _cause_in_cluster(snapshot: Snapshot, member: ObservedPod) -> Cause:
    crash = _last_crash(member)
    if crash is not None and _exceeds_restarts(snapshot, member):
        return Cause.NODE if is_node_fault(crash) else Cause.RETRYABLE
    if member.state in (PodState.RUNNING, PodState.UNKNOWN):
        return Cause.IGNORED
    if member.state is PodState.SUCCEEDED:
        return Cause.RETRYABLE
    named = _known_error(snapshot, member)
    if named is not None and named.is_final:
        return Cause.PERMANENT
    return cause_of(member, snapshot.job.spec.restart_policy)


def _reason(member: ObservedPod) -> str:
    return Reason.SERVER_EXITED_EARLY if member.state is PodState.SUCCEEDED else Reason.POD_FAILED


def _idle_accelerators(snapshot: Snapshot, member: ObservedPod) -> str:
    role_spec, ending = dict(snapshot.job.spec.roles()).get(member.replica.role), ending_of(member)
    return idle_accelerators(role_spec, ending.message[-MAX_TEXT_LENGTH:]) if role_spec and ending else ""


def _what_happened(snapshot: Snapshot, member: ObservedPod) -> str:
    if member.state is PodState.SUCCEEDED:
        return f"{member.replica} {explain.ending(member)} before the workers were done"
    if member.state is PodState.FAILED:
        named = _known_error(snapshot, member)
        what = f"{member.replica} {explain.ending(member)}" + (f" ({named.reason})" if named else "")
        if _cause(snapshot, member) is Cause.NODE:
            return f"{what}{_on_node(member)}"
        if idle := _idle_accelerators(snapshot, member):
            return f"{what}; it {idle}"
        # Paddle ends ranks that have waited too long; the rank that they wait for is not among them.
        awaited = snapshot.finding(Awaited)
        is_victim = awaited and f"{member.pod.metadata.name} " not in awaited.message
        return f"{what}; it was waiting: {awaited.message}" if awaited and is_victim else what
    if member.training and _exceeds_restarts(snapshot, member):
        many = f"was restarted in place {member.training.restart_count} times"
        where = _on_node(member) if _cause(snapshot, member) is Cause.NODE else ""
        return f"{member.replica} {explain.obstacle(member) or many}{where}"
    return f"{member.replica} is lost: node {member.pod.spec.node_name or '(unknown)'} is not responding"


def _on_node(member: ObservedPod) -> str:
    return f", on node {member.pod.spec.node_name}"
