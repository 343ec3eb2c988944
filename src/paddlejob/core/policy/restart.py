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
from paddlejob.core.classify import Member, PodState, Roster, ending_of
from paddlejob.core.policy import backoff
from paddlejob.core.policy.change import reform_after_change
from paddlejob.core.policy.elastic import reform_elastically
from paddlejob.core.policy.failure import Cause, believed_end, cause_of, first_failure
from paddlejob.core.policy.formation import Reform, depends_on_peers
from paddlejob.core.policy.legacy import reform_inherited, without_mixing
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.standing import Standing
from paddlejob.core.topology import Site

_KUBELETS_REASONS = ("ContainersNotReady", "ReadinessGatesNotReady", "UnknownContainerStatuses")
"""Why a kubelet says that a pod is not ready. It does answer."""


class Response(msgspec.Struct, frozen=True):
    """What to do about the state of the pods: end, re-form, or go on and look again in time."""

    verdict: Standing | None = None
    failure: Failure | None = None
    """What the verdict is about."""
    reform: Reform | None = None
    look_again_in_seconds: float | None = None


def respond(world: Snapshot, site: Site, roster: Roster, fingerprint: str | None) -> Response:
    """Decide, in order: failures, losses, changes of size, stale addresses, elastic growth and shrinkage."""
    response = _respond(world, site, roster, fingerprint)
    return msgspec.structs.replace(response, reform=without_mixing(response.reform, roster))


def after_failures(world: Snapshot, spec: EffectiveSpec, roster: Roster) -> Response:
    """Decide on failures alone."""
    broken, wait = _broken(world, roster)
    return _after_failure(world, spec, broken) if broken else Response(look_again_in_seconds=wait)


def _respond(world: Snapshot, site: Site, roster: Roster, fingerprint: str | None) -> Response:
    failures = after_failures(world, site.spec, roster)
    if failures.verdict or failures.reform:
        return failures
    change = reform_after_change(world, site, roster, fingerprint) or reform_inherited(roster)
    if change is not None:
        return Response(reform=change)
    resize, elastic_wait = reform_elastically(world, roster)
    waits = [each for each in (failures.look_again_in_seconds, elastic_wait) if each is not None]
    return Response(reform=resize, look_again_in_seconds=min(waits, default=None))


def _broken(world: Snapshot, roster: Roster) -> tuple[list[Member], float | None]:
    """Return the pods that failed, and when to look again at those that may turn out to have.

    A server that is gone with exit code 0 has failed too unless the workers end in a moment: Paddle's server
    exits 0 when it cannot listen, and also when a worker tells it to stop just before its own end.
    """
    policy, grace = world.job.spec.restart_policy, world.settings.server_exit_grace_seconds
    broken, waits = [], []
    for member in roster.active():
        if member.seat in roster.finished:
            continue
        left = 0.0
        if member.state is PodState.SUCCEEDED and member.seat.role is not Role.WORKER:
            left = grace - world.seconds_in_state(member.pod)
        elif _is_silent(member):
            left = policy.node_lost_seconds - world.seconds_in_state(member.pod)
        elif member.state is not PodState.FAILED and not _exhausted(world, member):
            continue
        if left > 0:
            waits.append(left)
        else:
            broken.append(member)
    return broken, min(waits, default=None)


def _is_silent(member: Member) -> bool:
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


def _exhausted(world: Snapshot, member: Member) -> bool:
    """Return whether a container has been restarted in place more often than the job may be restarted."""
    return member.training is not None and member.training.restart_count > world.job.spec.backoff_limit


def _after_failure(world: Snapshot, spec: EffectiveSpec, broken: list[Member]) -> Response:
    policy, status = world.job.spec.restart_policy, world.job.status
    first = first_failure(broken, policy, world)
    what = _what_happened(world, first)
    cause, whole = _cause(world, first), any(depends_on_peers(spec, member.seat.role) for member in broken)
    in_a_row = backoff.restarts_in_a_row(status, world.now) + 1
    is_habit = backoff.restarts_each(in_a_row, world.job, whole=whole) > backoff.EARLY_RESTARTS
    counted = cause is Cause.RETRYABLE or (cause is Cause.PLANNED and is_habit)
    failure = _failure(world, first, what, counted=counted)
    if cause is Cause.PERMANENT:
        return Response(Standing(Phase.FAILED, _reason(first), what), failure)
    if counted and (status.restarts >= world.job.spec.backoff_limit or _exhausted(world, first)):
        tries = f"{status.restarts} restart{'' if status.restarts == 1 else 's'}"
        sentence = f"{what}; gave up after {tries} (backoffLimit {world.job.spec.backoff_limit})"
        return Response(Standing(Phase.FAILED, Reason.BACKOFF_LIMIT_EXCEEDED, sentence), failure)
    reason = Reason.RESTARTING if whole else Reason.REPLACED_POD
    reform = Reform(Phase.RESTARTING, reason, what, whole=whole, victims=tuple(broken), failure=failure)
    return Response(reform=reform)


def _failure(world: Snapshot, member: Member, what: str, *, counted: bool) -> Failure:
    ending = ending_of(member)
    return Failure(
        attempt=world.job.status.attempt,
        pod=member.pod.metadata.name,
        reason=member.pod.status.reason or (ending.reason if ending else "") or _reason(member),
        exit_code=ending.exit_code if ending else 0,
        message=what,
        time=believed_end(member, world),
        counted=counted,
    )


def _cause(world: Snapshot, member: Member) -> Cause:
    if member.state in (PodState.RUNNING, PodState.UNKNOWN):
        return Cause.RETRYABLE if _exhausted(world, member) else Cause.IGNORED
    if member.state is PodState.SUCCEEDED:
        return Cause.RETRYABLE
    return cause_of(member, world.job.spec.restart_policy)


def _reason(member: Member) -> str:
    return Reason.SERVER_EXITED_EARLY if member.state is PodState.SUCCEEDED else Reason.POD_FAILED


def _what_happened(world: Snapshot, member: Member) -> str:
    if member.state is PodState.SUCCEEDED:
        return f"{member.seat} exited {explain.ending(member)} before the workers were done"
    if member.state is PodState.FAILED:
        return f"{member.seat} failed first {explain.ending(member)}"
    if _exhausted(world, member):
        return f"{member.seat} {explain.obstacle(member) or 'was restarted in place too often'}"
    return f"{member.seat} is lost: its node {member.pod.spec.node_name or ''} does not answer"
