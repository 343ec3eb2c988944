"""Failures: which pods have failed, and whether that ends the job or restarts it.

1. In place: a container that its kubelet restarts needs nothing from us.
2. Pod: a worker that its peers do not depend on is replaced alone.
3. Job: where one lost pod breaks all others, all are replaced, and resume from their checkpoint.

Peers depend on each other in collective jobs, on parameter servers always, and among the workers of a
parameter server job when gloo is on: a worker that comes back late waits for a meeting that is over.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.names import Reason
from paddlejob.api.pod import ContainerTerminated
from paddlejob.api.v1 import Failure, PaddleJobStatus, Phase, ProgressMark, Role
from paddlejob.core import explain
from paddlejob.core.accelerators import left_idle
from paddlejob.core.attempts import advance, backoff, known_errors
from paddlejob.core.attempts.causes import (
    PLANNED_EXIT_CODES,
    Cause,
    believed_end,
    cause_of,
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
from paddlejob.core.messages import LONGEST_TEXT, PhaseReason, Verdict
from paddlejob.core.network import with_ipv6_warning
from paddlejob.core.pod_set import ObservedPod, PodState, ending_of
from paddlejob.core.snapshot import Snapshot

if TYPE_CHECKING:
    from paddlejob.core.observed import Observed

_KUBELETS_REASONS = ("ContainersNotReady", "ReadinessGatesNotReady", "UnknownContainerStatuses")
"""Why a kubelet says that a pod is not ready. It does answer."""

_LONG_BACK_OFF = re.compile(r"back-off \d+m")
"""Begins the message of a container that waits for a minute or more, after several crashes in a row.

A kubelet resets its back-off after a run of 10 minutes.
"""

MAX_RESTARTS_PER_LIMIT = 10
"""Maximum number of restarts in place in the life of a pod, as a multiple of `backoffLimit`."""


def failed(job: Observed) -> Verdict | None:
    """Find a failure that ends the job."""
    outcome = _judge(job) if job.has_failure_rules else None
    if not isinstance(outcome, Verdict):
        return None
    return msgspec.structs.replace(outcome, phase_reason=with_ipv6_warning(outcome.phase_reason, job.pods))


def restart(job: Observed) -> NewAttempt | None:
    """Find a failure that the job is restarted after."""
    outcome = _judge(job)
    return outcome if isinstance(outcome, NewAttempt) else None


def what_happened(job: Observed) -> str:
    """Return what is wrong with the pods, empty when nothing is."""
    outcome = _judge(job)
    if isinstance(outcome, Verdict):
        return outcome.phase_reason.message
    return outcome.message if outcome else ""


def look_again(job: Observed) -> float | None:
    """Return when a pod that may have failed is known to have."""
    return _broken(job)[1]


def _judge(job: Observed) -> Verdict | NewAttempt | None:
    """Judge the failed pods, unless a peer that they depend on was deleted: their exit follows from that."""
    broken, _ = _broken(job)
    if not broken or lost_peers(job):
        return None
    return _after_failure(job.snapshot, job.spec, broken)


def _broken(job: Observed) -> tuple[list[ObservedPod], float | None]:
    """Return the pods that failed, and when to look again at those that may turn out to have.

    A server that is gone with exit code 0 has failed too unless the workers end in a moment: Paddle's server
    exits 0 when it cannot listen, and also when a worker tells it to stop just before its own end.

    No pod has failed while the phase of an ended peer is awaited: that peer may be the cause.
    """
    snapshot, pod_set, awaits_peer = job.snapshot, job.pods, False
    policy, grace = snapshot.job.spec.restart_policy, snapshot.settings.server_exit_grace_seconds
    broken, waits = [], []
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
        elif _is_silent(member):
            left = policy.node_lost_seconds - snapshot.seconds_in_state(member.pod)
        elif member.state is not PodState.FAILED and not _exhausted(snapshot, member):
            continue
        if left > 0:
            waits.append(left)
        else:
            broken.append(member)
    return [] if awaits_peer else broken, min(waits, default=None)


def _is_silent(member: ObservedPod) -> bool:
    """Return whether a node is silent: the node controller took back that a pod is ready, and only that.

    A kubelet that finds a pod not ready gives a reason, or finds its containers not ready either.
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


def _exhausted(snapshot: Snapshot, member: ObservedPod) -> bool:
    """Return whether a container was restarted in place more often than the job may be.

    Months may lie between restarts, so that only crashes in a row count; or 10 times as many crashes in all,
    if no steps show that the job gets further. A container that runs is not judged.
    """
    container, limit = member.training, snapshot.job.spec.backoff_limit
    if container is None or _last_crash(member) is None or container.restart_count <= limit:
        return False
    waiting = container.state.waiting
    if waiting is not None and _LONG_BACK_OFF.match(waiting.message):
        return True
    is_beyond = container.restart_count > MAX_RESTARTS_PER_LIMIT * max(1, limit)
    return is_beyond and not advance.knows_steps(snapshot.job.status)


def _last_crash(member: ObservedPod) -> ContainerTerminated | None:
    """Return the end of a training container that its kubelet restarts in place, None while it runs."""
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
    # The template may be at fault if no container starts; nodes never end a job that has run.
    never_started = cause is Cause.NODE and is_start_error(first) and status.start_time is None
    is_suspect = cause is Cause.PLANNED or never_started
    counted = cause is Cause.RETRYABLE or (is_suspect and is_habit)
    failure = _failure(snapshot, first, what, counted=counted)
    if cause is Cause.PERMANENT:
        named = _known_error(snapshot, first)
        return Verdict(PhaseReason(Phase.FAILED, named.reason if named else _reason(first), what), failure)
    limit = backoff.progress_limit(snapshot.job)
    is_exhausted = not limit and _exhausted(snapshot, first)
    if counted and (is_exhausted or not backoff.has_restarts_left(snapshot.job)):
        why = Reason.NO_PROGRESS if limit else Reason.BACKOFF_LIMIT_EXCEEDED
        sentence = _stuck(what, status, limit) if limit else _given_up(snapshot, first)
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


def _given_up(snapshot: Snapshot, first: ObservedPod) -> str:
    """Return why the job ends, and after how many restarts; a crash in place has its number of restarts."""
    restarts, limit = snapshot.job.status.restarts, snapshot.job.spec.backoff_limit
    tries = "" if _exhausted(snapshot, first) else f" after {restarts} restart{'' if restarts == 1 else 's'}"
    return f"{_what_happened(snapshot, first)}; gave up{tries} (backoffLimit {limit})"


def _stuck(what: str, status: PaddleJobStatus, limit: int) -> str:
    mark = status.progress_mark or ProgressMark()
    where = f"epoch {mark.epoch} step {mark.step}" if mark.epoch else f"step {mark.step}"
    times = "1 restart" if limit == 1 else f"{limit} restarts"
    return f"{what}; no progress beyond {where} in {times} (noProgressLimit {limit})"


def _known_error(snapshot: Snapshot, member: ObservedPod) -> KnownError | None:
    """Return the named error that a pod ended with: in its last words, else in the job's last loss.

    A loss explains no end that came from outside, nor one that the job's own rules explain.
    """
    ending = ending_of(member)
    if member.state is not PodState.FAILED or ending is None or platform_cause(member):
        return None
    if not ending.exit_code or rule_for(ending.exit_code, snapshot.job.spec.restart_policy):
        return None
    if named := known_errors.from_last_words(ending.message):
        return named
    by_itself = ending.exit_code not in PLANNED_EXIT_CODES and not is_outside_kill(ending.exit_code)
    return known_errors.from_loss(snapshot.job.status) if by_itself else None


def _failure(snapshot: Snapshot, member: ObservedPod, what: str, *, counted: bool) -> Failure:
    ending, named = ending_of(member) or _last_crash(member), _known_error(snapshot, member)
    usual = member.pod.status.reason or (ending.reason if ending else "") or _reason(member)
    return Failure(
        attempt=snapshot.job.status.attempt,
        pod=member.pod.metadata.name,
        reason=named.reason if named else usual,
        exit_code=ending.exit_code if ending else 0,
        message=what,
        time=believed_end(member, snapshot),
        counted=counted,
    )


def _cause(snapshot: Snapshot, member: ObservedPod) -> Cause:
    cause = _cause_anywhere(snapshot, member)
    # A laptop is the only machine there is, and would refuse again.
    return Cause.PERMANENT if cause is Cause.NODE and not snapshot.has_scheduler else cause


def _cause_anywhere(snapshot: Snapshot, member: ObservedPod) -> Cause:
    crash = _last_crash(member)
    if crash is not None and _exhausted(snapshot, member):
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
    return left_idle(role_spec, ending.message[-LONGEST_TEXT:]) if role_spec and ending else ""


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
        # Paddle ends ranks that have waited for too long, and who is waited for is not among them.
        is_victim = snapshot.awaited and f"{member.pod.metadata.name} " not in snapshot.awaited
        return f"{what}; it was waiting: {snapshot.awaited}" if is_victim else what
    if member.training and _exhausted(snapshot, member):
        many = f"was restarted in place {member.training.restart_count} times"
        where = _on_node(member) if _cause(snapshot, member) is Cause.NODE else ""
        return f"{member.replica} {explain.obstacle(member) or many}{where}"
    return f"{member.replica} is lost: node {member.pod.spec.node_name or '(unknown)'} is not responding"


def _on_node(member: ObservedPod) -> str:
    return f", on node {member.pod.spec.node_name}"
