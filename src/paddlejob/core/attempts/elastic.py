"""The number of workers that an elastic job runs with: all that it asks for, or as many as find a node.

If not all workers find a node within a time limit, the job starts with fewer. The missing workers get standby
pods. These belong to the next attempt, whose key the ConfigMap lacks, so their containers cannot start. When
the scheduler finds nodes for them, the job grows.

Workers that do not depend on each other train without a missing worker, and its pod joins them when it finds
a node. After the same time limit the job is Running without it. The job completes without it only after
MIN_OMISSION_SECONDS, because a drained worker has work left and usually finds a node earlier. With an etcd,
Paddle's launcher divides the work among the others.
"""

from __future__ import annotations

import msgspec

from paddlejob.api.defaulting import EffectiveSpec, Rendezvous
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Mode, PaddleJob, PaddleJobSpec, Phase, Role, RoleSpec
from paddlejob.core import explain
from paddlejob.core.actions import soonest
from paddlejob.core.attempts import backoff
from paddlejob.core.attempts.new_attempt import NewAttempt, depends_on_peers, is_complete, was_established
from paddlejob.core.pod_set import ObservedPod, PodSet, PodState, Replica
from paddlejob.core.snapshot import Snapshot

MIN_OMISSION_SECONDS = 600.0
"""How long a worker must have been without a node before the job may complete without it."""


class WorkerRange(msgspec.Struct, frozen=True):
    """Minimum and maximum number of workers."""

    least: int
    most: int


def worker_range(spec: PaddleJobSpec) -> WorkerRange | None:
    """Return the bounds of an elastic job, None for a job of fixed size.

    A job is elastic if it has `elastic`, or the bounds `worker.requests` or `worker.limits`.
    """
    worker = spec.worker
    if worker is None or (spec.elastic is None and not worker.requests and not worker.limits):
        return None
    return WorkerRange(worker.requests or 1, max(worker.limits or 0, worker.replicas))


def with_workers(spec: EffectiveSpec, workers: int) -> EffectiveSpec:
    """Return the spec with at most this many workers; 0 means no limit."""

    def reduce(role: Role, role_spec: RoleSpec) -> RoleSpec:
        if role is not Role.WORKER or not 0 < workers < role_spec.replicas:
            return role_spec
        return msgspec.structs.replace(role_spec, replicas=workers)

    return msgspec.structs.replace(spec, roles=tuple((role, reduce(role, each)) for role, each in spec.roles))


def with_rendezvous(spec: EffectiveSpec, given: PaddleJobSpec, etcd_server: str) -> EffectiveSpec:
    """If an etcd is configured, let Paddle's launcher handle elastic collective jobs.

    The launcher restarts the training processes when pods come and go, so no pod depends on another one.
    """
    bounds = worker_range(given)
    if not etcd_server or bounds is None or spec.mode not in (Mode.COLLECTIVE, Mode.SINGLE):
        return spec
    nodes = f"{bounds.least}:{bounds.most}"
    return msgspec.structs.replace(spec, rendezvous=Rendezvous(etcd_server, nodes))


def resize(snapshot: Snapshot, pod_set: PodSet) -> NewAttempt | None:
    """Return a new attempt if the job has to grow or shrink."""
    return _resize(snapshot, pod_set)[0]


def seconds_to_resize(snapshot: Snapshot, spec: EffectiveSpec, pod_set: PodSet) -> float | None:
    """Return when the job may next grow or shrink, or train or complete without a worker."""
    limits = (snapshot.settings.elastic_wait_seconds, MIN_OMISSION_SECONDS)
    waited = _seconds_without_node(snapshot, spec, pod_set).values()
    waits = (limit - seconds for limit in limits for seconds in waited if seconds < limit)
    return soonest(_resize(snapshot, pod_set)[1], *waits)


def with_given_up(snapshot: Snapshot, spec: EffectiveSpec, pod_set: PodSet) -> PodSet:
    """Mark the workers that found no node in time and that the job can do without."""
    waited, limit = _seconds_without_node(snapshot, spec, pod_set), snapshot.settings.elastic_wait_seconds
    given_up = frozenset(replica for replica, seconds in waited.items() if seconds >= limit)
    least = 0.0 if spec.rendezvous else MIN_OMISSION_SECONDS
    omitted = frozenset(replica for replica in given_up if waited[replica] >= least)
    return msgspec.structs.replace(pod_set, given_up=given_up, omitted=omitted) if given_up else pod_set


def _seconds_without_node(snapshot: Snapshot, spec: EffectiveSpec, pod_set: PodSet) -> dict[Replica, float]:
    """Return how long workers have been without a node, if enough others train without them."""
    bounds, status = worker_range(snapshot.job.spec), snapshot.job.status
    if bounds is None or depends_on_peers(spec, Role.WORKER) or not was_established(status):
        return {}
    workers = [worker for worker in pod_set.active_in(Role.WORKER) if worker.replica not in pod_set.finished]
    waiting = [worker for worker in workers if worker.state is PodState.PENDING]
    if len(workers) - len(waiting) + len(pod_set.finished) < bounds.least:
        return {}
    moments = {worker.replica: worker.pod.metadata.creation_timestamp for worker in waiting}
    began = {
        replica: max(filter(None, (created, status.attempt_time)), default=snapshot.now)
        for replica, created in moments.items()
    }
    return {replica: (snapshot.now - since).total_seconds() for replica, since in began.items()}


def useless_standby(job: PaddleJob, pod_set: PodSet) -> tuple[ObservedPod, ...]:
    """Return the standby pods that have ended or are beyond the wanted number of workers."""
    ended, wanted = (PodState.FAILED, PodState.SUCCEEDED), job.spec.replicas(Role.WORKER)
    return tuple(each for each in pod_set.standby if each.state in ended or each.replica.index >= wanted)


def _resize(snapshot: Snapshot, pod_set: PodSet) -> tuple[NewAttempt | None, float | None]:
    bounds = worker_range(snapshot.job.spec)
    if bounds is None or snapshot.settings.etcd_server:
        fewer = 0 < snapshot.job.status.workers < snapshot.job.spec.replicas(Role.WORKER)
        message = f"scaling up to {snapshot.job.spec.replicas(Role.WORKER)} workers"
        return NewAttempt(Phase.SCALING, Reason.SCALED, message, workers=0) if fewer else None, None
    if pod_set.standby:
        return _growth(snapshot, pod_set)
    waits_for_creation = bool(pod_set.to_create) and not snapshot.failures
    if was_established(snapshot.job.status) or is_complete(pod_set) or waits_for_creation:
        return None, None
    return _shrinkage(snapshot, pod_set, bounds.least)


def _growth(snapshot: Snapshot, pod_set: PodSet) -> tuple[NewAttempt | None, float | None]:
    """Add workers that found a node, after a delay if the size has just changed several times."""
    found = sum(
        bool(each.pod.status.pod_ip)
        and not each.is_leaving
        and each.state in (PodState.STARTING, PodState.RUNNING)
        and each.replica.index < snapshot.job.spec.replicas(Role.WORKER)
        for each in pod_set.standby
    )
    if not found or pod_set.finished:
        return None, None
    status = snapshot.job.status
    in_a_row = backoff.restarts_in_a_row(status, snapshot.now)
    delay = backoff.delay_seconds(snapshot.job.spec.restart_policy, in_a_row, first_is_immediate=True)
    left = delay - (snapshot.now - (status.attempt_time or snapshot.now)).total_seconds()
    if left > 0:
        return None, left
    workers = pod_set.desired(Role.WORKER) + found
    full = workers >= snapshot.job.spec.replicas(Role.WORKER)
    message = f"scaling up to {workers} workers"
    return NewAttempt(Phase.SCALING, Reason.GROWN, message, workers=0 if full else workers), None


def _shrinkage(snapshot: Snapshot, pod_set: PodSet, least: int) -> tuple[NewAttempt | None, float | None]:
    """After a time limit, continue without the workers that the cluster has no room for."""
    unscheduled = (PodState.PENDING, PodState.FAILED, PodState.UNKNOWN)
    placed = {member.replica for member in pod_set.active_in(Role.WORKER) if member.state not in unscheduled}
    affordable = len(placed | pod_set.finished)
    if not least <= affordable < pod_set.desired(Role.WORKER):
        return None, None
    status = snapshot.job.status
    waiting = (member for member in pod_set.active_in(Role.WORKER) if member.state in unscheduled)
    created = (member.pod.metadata.creation_timestamp for member in waiting)
    first_pod = min((moment for moment in created if moment), default=None)
    moments = (snapshot.job.metadata.creation_timestamp, status.attempt_time, status.resume_time, first_pod)
    began = max((moment for moment in moments if moment), default=snapshot.now)
    left = snapshot.settings.elastic_wait_seconds - (snapshot.now - began).total_seconds()
    if left > 0:
        return None, left
    held_up = explain.first_obstacle(pod_set.active_in(Role.WORKER))
    why = f": {held_up[0].replica}: {held_up[1]}" if held_up else ""
    message = f"running with {affordable} of {pod_set.desired(Role.WORKER)} workers{why}"
    return NewAttempt(Phase.SCALING, Reason.SHRUNK, message, workers=affordable), None
