"""Pods that no longer match the job: a pod was deleted, the size changed, or addresses changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Failure, Phase, Role
from paddlejob.core.attempts.new_attempt import (
    NewAttempt,
    depends_on_peers,
    is_established,
    was_established,
    world_size_of,
)
from paddlejob.core.observed import Observed, ValidJob
from paddlejob.core.paddle_env import attempt_key, environment_of, published_host
from paddlejob.core.pod_set import Replica, pod_name


def replace_lost_pods(job: Observed) -> NewAttempt | None:
    """Return a new attempt if pods were deleted or are being deleted; the restart does not count.

    The loss of a pod that others depend on restarts them too: they hold its address and share its work.
    A worker replaced on its own is not treated as lost until all pods have been up once.
    """
    scaling, breaking = scale_to_spec(job), lost_peers(job)
    if scaling is not None and scaling.all_pods:
        return None
    missed = breaking or (_gone(job) if is_established(job.status) and scaling is None else [])
    if not missed:
        return None
    message = f"{missed[0]}: its pod was deleted"
    reason = Reason.RESTARTING if breaking else Reason.REPLACED_POD
    failure = _uncounted_failure(job, missed[0], Reason.POD_LOST, message)
    return NewAttempt(Phase.RESTARTING, reason, message, all_pods=bool(breaking), failure=failure)


def lost_peers(job: Observed) -> list[Replica]:
    """Return the replicas that others depend on and that have lost or are losing their pods."""
    leaving = [replica for replica in _needed(job) if _is_leaving(job, replica)]
    return [
        replica
        for replica in (*_gone(job), *leaving)
        if depends_on_peers(job.spec, replica.role) and _was_up(job, replica)
    ]


def _needed(job: Observed) -> list[Replica]:
    return [replica for replica in job.pods.wanted if replica not in job.pods.finished]


def _gone(job: Observed) -> list[Replica]:
    return [replica for replica in _needed(job) if replica not in job.pods.members]


def _is_leaving(job: Observed, replica: Replica) -> bool:
    return replica in job.pods.members and job.pods.members[replica].is_leaving


def scale_to_spec(job: Observed) -> NewAttempt | None:
    """Return a new attempt if the user has changed the number of pods."""
    had = job.status.world_size
    if had is None or not was_established(job.status):
        return None
    wanted = world_size_of(job.pods, had.attempt)
    if had == wanted:
        return None
    changes = [
        f"{role} from {getattr(had, role)} to {getattr(wanted, role)}"
        for role in Role
        if getattr(had, role) != getattr(wanted, role)
    ]
    servers_change = (had.ps, had.heter) != (wanted.ps, wanted.heter)
    all_pods = servers_change or depends_on_peers(job.spec, Role.WORKER)
    message = f"scaling {' and '.join(changes)}"
    return NewAttempt(Phase.SCALING, Reason.SCALED, message, all_pods=all_pods, to_delete=job.pods.excess)


def take_back_moves(job: Observed) -> NewAttempt | None:
    """Return a new attempt if the job was scaled so that its moved ranks no longer fit."""
    if not job.status.moved_ranks or job.pods.moves:
        return None
    message = f"scaling worker to {job.pods.desired(Role.WORKER)}"
    return NewAttempt(Phase.SCALING, Reason.SCALED, message)


def restart_after_move(job: ValidJob) -> NewAttempt | None:
    """Return a new attempt if pods train with outdated addresses of their peers."""
    # The ConfigMap of a restart in place is written before all programs are up again.
    were_up = was_established(job.status) or _is_published(job)
    holder = next(_holders_of_old_addresses(job), None) if were_up else None
    if holder is None:
        return None
    message = f"{holder} holds addresses that have changed since it started"
    failure = _uncounted_failure(job, holder, Reason.ADDRESS_CHANGED, message)
    return NewAttempt(Phase.RESTARTING, Reason.RESTARTING, message, failure=failure)


def restart_after_late_loss(job: ValidJob) -> NewAttempt | None:
    """Return a new attempt if a pod was lost after the addresses of a restart in place were published.

    If the ConfigMap has the key of the attempt, because of another new pod, a new pod would start with the
    address of the lost one.
    """
    data = job.snapshot.config_map.data if job.snapshot.config_map else {}
    is_open = attempt_key(job.trusted, job.status.attempt) in data and not job.context.knows_hosts_beforehand
    if not (is_open and job.pods.missing and _is_published(job)):
        return None
    replica = job.pods.missing[0]
    message = f"{replica}: its pod was lost while the programs restarted"
    failure = _uncounted_failure(job, replica, Reason.POD_LOST, message)
    return NewAttempt(Phase.RESTARTING, Reason.RESTARTING, message, failure=failure)


def _was_up(job: Observed, replica: Replica) -> bool:
    """Return whether other pods have worked with the pod of a replica.

    Pods that are called by name start before all pods exist. Workers are created after all servers, so once a
    worker has started, a missing server was up, unless it was pending and is being rescheduled.
    """
    had, status = job.status.world_size, job.status
    if had is not None and was_established(status):
        return replica.index < int(getattr(had, replica.role))
    is_rescheduled = status.phase is Phase.SCALING and status.attempt > status.base_attempt
    workers = job.pods.active_in(Role.WORKER)
    return replica.role is Role.PS and not is_rescheduled and any(worker.has_started for worker in workers)


def _holders_of_old_addresses(job: ValidJob) -> Iterator[Replica]:
    """Yield started pods whose environment has an outdated address of a pod that they depend on.

    If workers depend on each other, any change of the ConfigMap since their start counts. Otherwise workers
    come and go, and only the addresses of the servers in the present ConfigMap count.
    """
    data = job.snapshot.config_map.data if job.snapshot.config_map else {}
    fingerprint, everything_matters = job.config.fingerprint, depends_on_peers(job.spec, Role.WORKER)
    servers_moved = not everything_matters and _servers_moved(job, data)
    for member in job.pods.active:
        if not member.has_started or member.replica in job.pods.finished:
            continue
        if member.attempt < job.status.process_attempt:
            # Its program got its addresses with the order to restart, and no mark.
            if _is_published(job) and (servers_moved or (everything_matters and _addresses_moved(job, data))):
                yield member.replica
            continue
        mark = member.pod.metadata.annotations.get(names.ANNOTATION_CONFIG_HASH)
        holds_others = fingerprint is not None and mark not in (None, fingerprint)
        holds_these = attempt_key(job.trusted, member.attempt) in data
        if (everything_matters and holds_others) or (servers_moved and holds_these):
            yield member.replica


def _is_published(job: ValidJob) -> bool:
    """Return whether the ConfigMap has the addresses of the current restart in place."""
    return job.status.base_attempt < job.status.process_attempt == job.snapshot.published_attempt


def _addresses_moved(job: ValidJob, data: Mapping[str, str]) -> bool:
    """Return whether the ConfigMap has to be changed for programs that may have its addresses already."""
    wanted = job.config.data
    return wanted is not None and environment_of(wanted) != environment_of(data)


def _servers_moved(job: ValidJob, data: Mapping[str, str]) -> bool:
    if job.context.knows_hosts_beforehand:
        return False
    servers = [member for member in job.pods.active if member.replica.role is not Role.WORKER]
    addresses = (
        (published_host(data, member.replica.role, member.replica.index), member.pod.status.pod_ip)
        for member in servers
    )
    return any(known and address and known != address for known, address in addresses)


def _uncounted_failure(job: Observed, replica: Replica, reason: str, message: str) -> Failure:
    return Failure(
        attempt=job.status.attempt,
        pod=pod_name(job.stored.name, replica),
        reason=reason,
        message=message,
        time=job.now,
        counted=False,
    )
