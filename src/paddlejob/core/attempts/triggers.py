"""The causes of a new attempt, in order, and how a new attempt begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paddlejob.api import index_set, names
from paddlejob.api.names import Reason
from paddlejob.api.pod import Pod
from paddlejob.api.status_change import change_status
from paddlejob.api.v1 import Failure, HangPolicy, Phase, Role, StragglerPolicy, WorldSize
from paddlejob.core import status
from paddlejob.core.actions import Kind, Plan
from paddlejob.core.attempts import backoff, drift, elastic, failures, in_place, inherited, recovery
from paddlejob.core.attempts.new_attempt import NewAttempt, depends_on_peers, was_established, world_size_of
from paddlejob.core.attempts.spares import moved_from
from paddlejob.core.gang import kueue, registry
from paddlejob.core.messages import PhaseReason
from paddlejob.core.observed import Observed, ValidJob
from paddlejob.core.pod_set import PodState
from paddlejob.core.policy import deadline
from paddlejob.core.policy.cleanup import deletions
from paddlejob.training import steps
from paddlejob.training.findings import Hang, Slowdown

MAX_SUSPECT_NODES = 8


def restart_after_hang(job: Observed) -> NewAttempt | None:
    """Return a new attempt if the job hangs, its policy is Restart, and restarts are left."""
    hang, spec = job.snapshot.finding(Hang), job.trusted.spec
    if (
        hang is None
        or not hang.has_reports
        or not hang.is_learned
        or spec.hang_policy != HangPolicy.RESTART
        or not backoff.has_restarts_left(job.trusted)
    ):
        return None
    pod = hang.odd[0].partition(" ")[0] if hang.odd else ""
    failure = Failure(job.status.attempt, pod, Reason.HUNG, message=hang.message, time=job.now)
    return NewAttempt(Phase.RESTARTING, Reason.HUNG, hang.message, failure=failure)


def replace_straggler(job: Observed) -> NewAttempt | None:
    """Return a new attempt if a straggler has to be replaced and restarts are left.

    A rank that is slow again after its replacement, or on a node that it was to avoid, is not slow because of
    its node.
    """
    slow, spec, status = job.snapshot.finding(Slowdown), job.trusted.spec, job.status
    if (
        slow is None
        or not slow.is_lasting
        or spec.straggler_policy != StragglerPolicy.REPLACE
        or not backoff.has_restarts_left(job.trusted)
    ):
        return None
    member = next((each for each in job.pods.active if each.pod.metadata.name == slow.pod), None)
    last = status.last_failure
    was_replaced = last is not None and (last.reason, last.pod) == (Reason.STRAGGLER, slow.pod)
    if member is None or was_replaced or member.pod.spec.node_name in status.suspect_nodes:
        return None
    return NewAttempt(
        Phase.RESTARTING,
        Reason.STRAGGLER,
        slow.message,
        all_pods=depends_on_peers(job.spec, member.replica.role),
        to_delete=(member,),
        failure=Failure(status.attempt, slow.pod, Reason.STRAGGLER, message=slow.message, time=job.now),
    )


def resize_elastic_job(job: Observed) -> NewAttempt | None:
    """Return a new attempt if an elastic job has to grow or shrink."""
    return elastic.resize(job.snapshot, job.pods)


def restart_after_eviction(job: Observed) -> NewAttempt | None:
    """Return a new attempt if Kueue wants the job's quota back."""
    return kueue.eviction(job.snapshot, job.pods)


def reschedule_gang(job: Observed) -> NewAttempt | None:
    """Return a new attempt if the gang no longer matches the pods and would never be complete.

    If no worker has trained, all pods are created again. Otherwise only the pending pods are, and they are
    scheduled alone from then on.
    """
    pods = job.pods
    waiting = tuple(
        member
        for member in pods.active
        if member.state is PodState.PENDING and names.ANNOTATION_GANG in member.pod.metadata.annotations
    )
    all_pods = not pods.has_trained_workers and any(pods.active)
    is_incomplete = bool(waiting or (all_pods and pods.missing))
    if not is_incomplete or was_established(job.status) or not registry.is_outgrown(job.snapshot, pods):
        return None
    message = "scheduling again: the job's pods changed"
    return NewAttempt(Phase.SCALING, Reason.SCALED, message, all_pods=all_pods, to_delete=waiting)


TRIGGERS: tuple[Callable[[ValidJob], NewAttempt | None], ...] = (
    drift.take_back_moves,
    failures.restart_after_failure,
    restart_after_hang,
    replace_straggler,
    drift.replace_lost_pods,
    drift.restart_after_late_loss,
    drift.scale_to_spec,
    drift.restart_after_move,
    inherited.replace_unstarted,
    resize_elastic_job,
    restart_after_eviction,
    reschedule_gang,
)
"""In order: the first that applies begins the attempt."""


def next_attempt(job: ValidJob) -> NewAttempt | None:
    """Return the attempt to begin now, None to continue the current one."""
    found = next(filter(None, (trigger(job) for trigger in TRIGGERS)), None)
    return inherited.without_mixed_pods(found, job.pods) if found else None


def begin_attempt(job: Observed, new: NewAttempt) -> Plan:
    """Record the attempt, then delete the old pods; the next reconcile creates the missing ones."""
    old, attempt = job.status, job.status.attempt + 1
    new = in_place.keep_pods(job, new)
    suspects = _suspect_nodes(job, new)
    moves = in_place.moved_ranks(job, new, suspects)
    in_a_row, delay = _restart_delay(job, new)
    counted = new.failure is not None and new.failure.counted
    phase_reason = PhaseReason(new.phase, new.reason, new.message)
    fresh = status.next_status(job.trusted, job.spec, job.pods, phase_reason, job.now)
    fresh = steps.end_attempt(fresh, counted=counted)
    if new.reason == Reason.QUOTA_LOST:
        fresh = deadline.stop_clock(fresh, job.now)
    fresh = change_status(
        fresh,
        attempt=attempt,
        base_attempt=attempt if new.all_pods else old.base_attempt,
        process_attempt=attempt if new.in_place else old.process_attempt,
        attempt_time=job.now,
        consecutive_restarts=in_a_row,
        rounds=0,
        retry_time=backoff.end_of_delay(job.now, delay),
        restarts=old.restarts + counted,
        workers=old.workers if new.workers is None else new.workers,
        world_size=_kept_world_size(job, new),
        last_failure=new.failure or old.last_failure,
        last_recovery=recovery.begin(job, new, attempt),
        replaced_workers=_replaced_workers(job, new, moves),
        moved_ranks=index_set.format_moves(moves),
        suspect_nodes=suspects,
        succeeded_workers="" if new.all_pods else fresh.succeeded_workers,
    )
    stage = deletions(Kind.POD, _pods_to_delete(job, new))
    return Plan(fresh, (stage,) if stage else (), requeue_after_seconds=0.0)


def _pods_to_delete(job: Observed, new: NewAttempt) -> list[Pod]:
    """Return the pods to delete. Standby pods of the attempt that begins stay."""
    gone = [member.pod for member in job.pods.standby if member.attempt != job.status.attempt + 1]
    if not new.all_pods:
        return gone + [member.pod for member in new.to_delete]
    standby = {member.pod.metadata.uid for member in job.pods.standby}
    return gone + [pod for pod in job.snapshot.pods if pod.metadata.uid not in standby]


def _replaced_workers(job: Observed, new: NewAttempt, moves: Mapping[int, int]) -> str:
    """Return the workers that are replaced alone; they are not judged again while they terminate."""
    if new.all_pods:
        return ""
    earlier = [member for member in job.pods.outdated if member.attempt >= job.status.base_attempt]
    replicas = [*(member.replica for member in (*earlier, *new.to_delete)), *moved_from(job.pods, moves)]
    return index_set.compact(replica.index for replica in replicas if replica.role is Role.WORKER)


def _suspect_nodes(job: Observed, new: NewAttempt) -> tuple[str, ...]:
    """Add the node of a pod if its failure is blamed on the node; keep the newest few."""
    known = job.status.suspect_nodes
    if new.failure is None or not in_place.blames_node(new):
        return known
    found = (pod.spec.node_name for pod in job.snapshot.pods if pod.metadata.name == new.failure.pod)
    fresh = [node for node in found if node and node not in known]
    return (*known, *fresh)[-MAX_SUSPECT_NODES:]


def _restart_delay(job: Observed, new: NewAttempt) -> tuple[int, float]:
    """Return the number of consecutive restarts, and the delay of this one.

    A change by the user is no restart. An elastic job has already waited before it changes its size.
    """
    in_a_row = backoff.restarts_in_a_row(job.status, job.now)
    if new.phase is not Phase.RESTARTING:
        return in_a_row + (new.workers is not None), 0.0
    each = backoff.restarts_each(in_a_row + 1, job.trusted, all_pods=new.all_pods or new.in_place)
    policy = job.trusted.spec.restart_policy
    # A delay keeps new pods off a suspect node; the pods of a restart in place keep their nodes anyway.
    is_immediate = new.in_place or not new.blames_node
    return in_a_row + 1, backoff.delay_seconds(policy, each, first_is_immediate=is_immediate)


def _kept_world_size(job: Observed, new: NewAttempt) -> WorldSize | None:
    """Return the world size of the surviving pods, adjusted to the new replica count."""
    had = job.status.world_size
    if had is None or new.all_pods or new.in_place or not was_established(job.status):
        return None
    return world_size_of(job.pods, had.attempt)
