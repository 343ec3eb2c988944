"""The restart ladder: what a broken, changed or incomplete job needs.

1. In place: a container that its kubelet restarts needs nothing from us.
2. Pod: a worker that its peers do not depend on is replaced alone.
3. Job: where one lost pod breaks all others, all are made anew, and resume from their checkpoint.

Peers depend on each other in collective jobs, on parameter servers always, and among the workers of a
parameter server job when gloo is on: a worker that comes back late waits for a meeting that is over.
"""

from __future__ import annotations

import msgspec

from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Failure, Phase, Role
from paddlejob.core import explain
from paddlejob.core.phase_reason import PhaseReason
from paddlejob.core.pod_set import ObservedPod, PodSet, PodState, ending_of
from paddlejob.core.policy import backoff
from paddlejob.core.policy.change import attempt_after_drift
from paddlejob.core.policy.elastic import elastic_attempt
from paddlejob.core.policy.failure import Cause, believed_end, cause_of, first_failure
from paddlejob.core.policy.legacy import attempt_after_takeover, without_mixed_pods
from paddlejob.core.policy.world_size import NewAttempt, depends_on_peers
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.topology import JobContext

_KUBELETS_REASONS = ("ContainersNotReady", "ReadinessGatesNotReady", "UnknownContainerStatuses")
"""Why a kubelet says that a pod is not ready. It does answer."""


class Response(msgspec.Struct, frozen=True):
    """What to do about the state of the pods: end, re-form, or go on and look again in time."""

    verdict: PhaseReason | None = None
    failure: Failure | None = None
    """What the verdict is about."""
    new_attempt: NewAttempt | None = None
    look_again_in_seconds: float | None = None


def respond(snapshot: Snapshot, context: JobContext, pod_set: PodSet, fingerprint: str | None) -> Response:
    """Decide, in order: failures, losses, changes of size, outdated addresses, elastic resizing."""
    response = _respond(snapshot, context, pod_set, fingerprint)
    return msgspec.structs.replace(response, new_attempt=without_mixed_pods(response.new_attempt, pod_set))


def after_failures(snapshot: Snapshot, spec: EffectiveSpec, pod_set: PodSet) -> Response:
    """Decide on failures alone."""
    broken, wait = _broken(snapshot, pod_set)
    return _after_failure(snapshot, spec, broken) if broken else Response(look_again_in_seconds=wait)


def _respond(snapshot: Snapshot, context: JobContext, pod_set: PodSet, fingerprint: str | None) -> Response:
    failures = after_failures(snapshot, context.spec, pod_set)
    if failures.verdict or failures.new_attempt:
        return failures
    change = attempt_after_drift(snapshot, context, pod_set, fingerprint) or attempt_after_takeover(pod_set)
    if change is not None:
        return Response(new_attempt=change)
    resize, elastic_wait = elastic_attempt(snapshot, pod_set)
    waits = [each for each in (failures.look_again_in_seconds, elastic_wait) if each is not None]
    return Response(new_attempt=resize, look_again_in_seconds=min(waits, default=None))


def _broken(snapshot: Snapshot, pod_set: PodSet) -> tuple[list[ObservedPod], float | None]:
    """Return the pods that failed, and when to look again at those that may turn out to have.

    A server that is gone with exit code 0 has failed too unless the workers end in a moment: Paddle's server
    exits 0 when it cannot listen, and also when a worker tells it to stop just before its own end.
    """
    policy, grace = snapshot.job.spec.restart_policy, snapshot.settings.server_exit_grace_seconds
    broken, waits = [], []
    for member in pod_set.active:
        if member.replica in pod_set.finished:
            continue
        left = 0.0
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
    return broken, min(waits, default=None)


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
    """Return whether a container has been restarted in place more often than the job may be restarted."""
    return member.training is not None and member.training.restart_count > snapshot.job.spec.backoff_limit


def _after_failure(snapshot: Snapshot, spec: EffectiveSpec, broken: list[ObservedPod]) -> Response:
    policy, status = snapshot.job.spec.restart_policy, snapshot.job.status
    first = first_failure(broken, policy, snapshot)
    what = _what_happened(snapshot, first)
    cause, all_pods = (
        _cause(snapshot, first),
        any(depends_on_peers(spec, member.replica.role) for member in broken),
    )
    in_a_row = backoff.restarts_in_a_row(status, snapshot.now) + 1
    is_habit = backoff.restarts_each(in_a_row, snapshot.job, all_pods=all_pods) > backoff.EARLY_RESTARTS
    counted = cause is Cause.RETRYABLE or (cause is Cause.PLANNED and is_habit)
    failure = _failure(snapshot, first, what, counted=counted)
    if cause is Cause.PERMANENT:
        return Response(PhaseReason(Phase.FAILED, _reason(first), what), failure)
    if counted and (status.restarts >= snapshot.job.spec.backoff_limit or _exhausted(snapshot, first)):
        tries = f"{status.restarts} restart{'' if status.restarts == 1 else 's'}"
        sentence = f"{what}; gave up after {tries} (backoffLimit {snapshot.job.spec.backoff_limit})"
        return Response(PhaseReason(Phase.FAILED, Reason.BACKOFF_LIMIT_EXCEEDED, sentence), failure)
    reason = Reason.RESTARTING if all_pods else Reason.REPLACED_POD
    new_attempt = NewAttempt(
        Phase.RESTARTING, reason, what, all_pods=all_pods, to_delete=tuple(broken), failure=failure
    )
    return Response(new_attempt=new_attempt)


def _failure(snapshot: Snapshot, member: ObservedPod, what: str, *, counted: bool) -> Failure:
    ending = ending_of(member)
    return Failure(
        attempt=snapshot.job.status.attempt,
        pod=member.pod.metadata.name,
        reason=member.pod.status.reason or (ending.reason if ending else "") or _reason(member),
        exit_code=ending.exit_code if ending else 0,
        message=what,
        time=believed_end(member, snapshot),
        counted=counted,
    )


def _cause(snapshot: Snapshot, member: ObservedPod) -> Cause:
    if member.state in (PodState.RUNNING, PodState.UNKNOWN):
        return Cause.RETRYABLE if _exhausted(snapshot, member) else Cause.IGNORED
    if member.state is PodState.SUCCEEDED:
        return Cause.RETRYABLE
    return cause_of(member, snapshot.job.spec.restart_policy)


def _reason(member: ObservedPod) -> str:
    return Reason.SERVER_EXITED_EARLY if member.state is PodState.SUCCEEDED else Reason.POD_FAILED


def _what_happened(snapshot: Snapshot, member: ObservedPod) -> str:
    if member.state is PodState.SUCCEEDED:
        return f"{member.replica} exited {explain.ending(member)} before the workers were done"
    if member.state is PodState.FAILED:
        return f"{member.replica} failed first {explain.ending(member)}"
    if _exhausted(snapshot, member):
        return f"{member.replica} {explain.obstacle(member) or 'was restarted in place too often'}"
    return f"{member.replica} is lost: its node {member.pod.spec.node_name or ''} does not answer"
