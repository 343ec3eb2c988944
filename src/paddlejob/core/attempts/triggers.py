"""What begins a new attempt, in one list, and how it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddlejob.api import index_set, names
from paddlejob.api.names import Reason
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Phase, Role, WorldSize
from paddlejob.core import status
from paddlejob.core.actions import Kind, Plan
from paddlejob.core.attempts import advance, backoff, drift, elastic, failures, inherited, known_errors
from paddlejob.core.attempts.new_attempt import NewAttempt, was_established, world_size_of
from paddlejob.core.gang import kueue, registry
from paddlejob.core.messages import PhaseReason
from paddlejob.core.pod_set import PodState
from paddlejob.core.policy import deadline
from paddlejob.core.policy.cleanup import deletions
from paddlejob.core.recording import hangs, stragglers

if TYPE_CHECKING:
    from paddlejob.core.observed import Observed


MAX_SUSPECT_NODES = 8
BLAMES_NODE = frozenset(
    (
        Reason.STRAGGLER,
        *(each.reason for each in known_errors.RECALL_ERRORS.values() if each.blames_node),
    )
)


def quota_lost(job: Observed) -> NewAttempt | None:
    """Find that Kueue wants the job's quota back."""
    return kueue.evicted(job.snapshot, job.pods)


def gang_outgrown(job: Observed) -> NewAttempt | None:
    """Find a gang of other pods than there will be, before all were there: it would never be complete.

    While no worker has trained, all pods are created again; then only those that still wait in it, which are
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


TRIGGERS = (
    failures.restart,
    hangs.hung,
    stragglers.replaced,
    drift.lost,
    drift.resized,
    drift.moved,
    inherited.not_started,
    elastic.resized,
    quota_lost,
    gang_outgrown,
)
"""In order: the first that applies begins the attempt."""


def next_attempt(job: Observed) -> NewAttempt | None:
    """Return the attempt that is to begin now, None when the present one goes on."""
    found = next(filter(None, (trigger(job) for trigger in TRIGGERS)), None)
    return inherited.without_mixed_pods(found, job.pods) if found else None


def begin_attempt(job: Observed, new: NewAttempt) -> Plan:
    """Record the attempt, then delete the old pods; the next reconcile creates what is missing."""
    old, attempt = job.status, job.status.attempt + 1
    in_a_row, delay = _restart_delay(job, new)
    fresh = status.next_status(
        job.job,
        job.spec,
        job.pods,
        PhaseReason(new.phase, new.reason, new.message),
        job.now,
        attempt=attempt,
        base_attempt=attempt if new.all_pods else old.base_attempt,
        attempt_time=job.now,
        consecutive_restarts=in_a_row,
        rounds=0,
        retry_time=backoff.after(job.now, delay),
        restarts=old.restarts + (new.failure is not None and new.failure.counted),
        workers=old.workers if new.workers is None else new.workers,
        world_size=_kept_world_size(job, new),
        last_failure=new.failure or old.last_failure,
        replaced_workers=_replaced_workers(job, new),
        suspect_nodes=_suspect_nodes(job, new),
        **advance.after_attempt(old, counted=new.failure is not None and new.failure.counted),
        **({"succeeded_workers": ""} if new.all_pods else {}),
        **(deadline.stopped_clock(job.job, job.now) if new.reason == Reason.QUOTA_LOST else {}),
    )
    stage = deletions(Kind.POD, _replaced(job, new))
    return Plan(fresh, (stage,) if stage else (), requeue_after_seconds=0.0)


def _replaced(job: Observed, new: NewAttempt) -> list[Pod]:
    """Return the pods that go. Pods on standby are of the attempt that begins, and stay."""
    gone = [member.pod for member in job.pods.standby if member.attempt != job.status.attempt + 1]
    if not new.all_pods:
        return gone + [member.pod for member in new.to_delete]
    standby = {member.pod.metadata.uid for member in job.pods.standby}
    return gone + [pod for pod in job.given.pods if pod.metadata.uid not in standby]


def _replaced_workers(job: Observed, new: NewAttempt) -> str:
    """Mark the workers that are replaced alone, so that none is judged again while its deletion takes."""
    if new.all_pods:
        return ""
    earlier = [member for member in job.pods.outdated if member.attempt >= job.status.base_attempt]
    replicas = (member.replica for member in (*earlier, *new.to_delete))
    return index_set.compact(replica.index for replica in replicas if replica.role is Role.WORKER)


def _suspect_nodes(job: Observed, new: NewAttempt) -> tuple[str, ...]:
    """Add the node of a pod whose failure its machine is blamed for; the newest few are kept."""
    known = job.status.suspect_nodes
    if new.failure is None or not (new.blames_node or new.failure.reason in BLAMES_NODE):
        return known
    found = (pod.spec.node_name for pod in job.given.pods if pod.metadata.name == new.failure.pod)
    fresh = [node for node in found if node and node not in known]
    return (*known, *fresh)[-MAX_SUSPECT_NODES:]


def _restart_delay(job: Observed, new: NewAttempt) -> tuple[int, float]:
    """Return how many restarts in a row this is, and how long it waits.

    What the user asked for is no restart. An elastic job has waited before it changes its size.
    """
    in_a_row = backoff.restarts_in_a_row(job.status, job.now)
    if new.phase is not Phase.RESTARTING:
        return in_a_row + (new.workers is not None), 0.0
    counted = new.failure is not None and new.failure.counted
    each = backoff.restarts_each(in_a_row + 1, job.job, all_pods=new.all_pods)
    policy = job.job.spec.restart_policy
    at_once = not counted and not new.blames_node
    return in_a_row + 1, backoff.delay_seconds(policy, each, first_at_once=at_once)


def _kept_world_size(job: Observed, new: NewAttempt) -> WorldSize | None:
    """Pods that stay have worked with each other, and miss each other; from now on in the wanted number."""
    had = job.status.world_size
    if had is None or new.all_pods or not was_established(job.status):
        return None
    return world_size_of(job.pods, had.attempt)
