"""Jobs whose pods are no longer what they were: one is gone, another size is wanted, addresses changed."""

from __future__ import annotations

from collections.abc import Iterator

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Failure, Phase, Role
from paddlejob.core.pod_set import PodSet, Replica, pod_name
from paddlejob.core.policy.world_size import (
    NewAttempt,
    depends_on_peers,
    is_established,
    was_formed,
    world_size_of,
)
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.topology import JobContext, attempt_key, published_host


def attempt_after_drift(
    snapshot: Snapshot, context: JobContext, pod_set: PodSet, fingerprint: str | None
) -> NewAttempt | None:
    """Return the new attempt that a change of the pods calls for, None when they are as they were."""
    scaling = _after_scaling(snapshot, context, pod_set)
    if scaling is not None and scaling.all_pods:
        return scaling
    return (
        _after_loss(snapshot, context, pod_set)
        or scaling
        or _after_move(snapshot, context, pod_set, fingerprint)
    )


def _after_loss(snapshot: Snapshot, context: JobContext, pod_set: PodSet) -> NewAttempt | None:
    """Find pods that were there and are gone, or go: somebody deleted them, so nobody is to blame.

    A pod that others depend on is lost whatever becomes of the rest: they hold its address, and their work.
    A worker that is replaced alone is not missed again before all were there.
    """
    gone = [
        replica
        for replica in pod_set.wanted
        if replica not in pod_set.members and replica not in pod_set.finished
    ]
    leaving = [
        replica
        for replica, member in pod_set.members.items()
        if member.is_leaving and replica not in pod_set.finished
    ]
    breaking = [
        replica
        for replica in (*gone, *leaving)
        if depends_on_peers(context.spec, replica.role) and _was_there(snapshot, pod_set, replica)
    ]
    lost = breaking or (gone if is_established(snapshot) and not _is_resized(snapshot, pod_set) else [])
    if not lost:
        return None
    message = f"{lost[0]} is gone: its pod was deleted"
    reason = Reason.RESTARTING if breaking else Reason.REPLACED_POD
    failure = _uncounted(snapshot, lost[0], Reason.POD_LOST, message)
    return NewAttempt(Phase.RESTARTING, reason, message, all_pods=bool(breaking), failure=failure)


def _was_there(snapshot: Snapshot, pod_set: PodSet, replica: Replica) -> bool:
    """Return whether others have worked with the pod of a replica.

    Pods that are called by name start before all are there. A worker comes after all servers, so where one
    has started a server that is missing was there.
    """
    formed = snapshot.job.status.world_size
    if formed is not None and was_formed(snapshot):
        return replica.index < int(getattr(formed, replica.role))
    return replica.role is Role.PS and any(worker.has_started for worker in pod_set.active_in(Role.WORKER))


def _is_resized(snapshot: Snapshot, pod_set: PodSet) -> bool:
    formed = snapshot.job.status.world_size
    return formed is not None and formed != world_size_of(pod_set, formed.attempt)


def _after_scaling(snapshot: Snapshot, context: JobContext, pod_set: PodSet) -> NewAttempt | None:
    """Find that the user wants another number of pods than there were."""
    formed = snapshot.job.status.world_size
    if formed is None or not was_formed(snapshot) or not _is_resized(snapshot, pod_set):
        return None
    wanted = world_size_of(pod_set, formed.attempt)
    changes = [
        f"{role} from {getattr(formed, role)} to {getattr(wanted, role)}"
        for role in Role
        if getattr(formed, role) != getattr(wanted, role)
    ]
    servers_change = (formed.ps, formed.heter) != (wanted.ps, wanted.heter)
    all_pods = servers_change or depends_on_peers(context.spec, Role.WORKER)
    message = f"scaling {' and '.join(changes)}"
    return NewAttempt(Phase.SCALING, Reason.SCALED, message, all_pods=all_pods, to_delete=pod_set.excess)


def _after_move(
    snapshot: Snapshot, context: JobContext, pod_set: PodSet, fingerprint: str | None
) -> NewAttempt | None:
    """Find pods that train with addresses which are no longer those of their peers."""
    if not was_formed(snapshot):
        return None
    outdated = next(_holders_of_stale_addresses(snapshot, context, pod_set, fingerprint), None)
    if outdated is None:
        return None
    message = f"{outdated} holds addresses that have changed since it started"
    failure = _uncounted(snapshot, outdated, Reason.ADDRESS_CHANGED, message)
    return NewAttempt(Phase.RESTARTING, Reason.RESTARTING, message, failure=failure)


def _holders_of_stale_addresses(
    snapshot: Snapshot, context: JobContext, pod_set: PodSet, fingerprint: str | None
) -> Iterator[Replica]:
    """Yield started pods whose environment has an address that a pod they depend on no longer has.

    Where workers depend on each other any change of the ConfigMap since their start is one. Elsewhere workers
    come and go, and only the addresses of the servers matter; no ConfigMap with others has been written yet.
    """
    data = snapshot.config_map.data if snapshot.config_map else {}
    everything_matters = depends_on_peers(context.spec, Role.WORKER)
    servers_moved = not everything_matters and _servers_moved(context, pod_set, data)
    for member in pod_set.active:
        mark = member.pod.metadata.annotations.get(names.ANNOTATION_CONFIG_HASH)
        if not member.has_started or member.replica in pod_set.finished:
            continue
        holds_others = fingerprint is not None and mark not in (None, fingerprint)
        holds_these = attempt_key(snapshot.job, member.attempt) in data
        if (everything_matters and holds_others) or (servers_moved and holds_these):
            yield member.replica


def _servers_moved(context: JobContext, pod_set: PodSet, data: dict[str, str]) -> bool:
    if context.uses_names or context.spec.rendezvous is not None:
        return False
    return any(
        bool(address := member.pod.status.pod_ip)
        and published_host(data, member.replica) not in ("", address)
        for member in pod_set.active
        if member.replica.role is not Role.WORKER
    )


def _uncounted(snapshot: Snapshot, replica: Replica, reason: str, message: str) -> Failure:
    return Failure(
        attempt=snapshot.job.status.attempt,
        pod=pod_name(snapshot.job.name, replica),
        reason=reason,
        message=message,
        time=snapshot.now,
        counted=False,
    )
