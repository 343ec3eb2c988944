"""Brings a live job's objects to the desired state, in stages that build on each other."""

from __future__ import annotations

import msgspec

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Role
from paddlejob.core import status
from paddlejob.core.actions import (
    Action,
    AnnotatePod,
    Create,
    Delete,
    Event,
    EventType,
    Kind,
    Plan,
    ReplaceConfig,
    Stages,
    soonest,
)
from paddlejob.core.attempts import backoff, elastic, failures
from paddlejob.core.attempts.inherited import has_inherited_pods
from paddlejob.core.attempts.new_attempt import is_complete, is_established, world_size_of
from paddlejob.core.messages import PhaseReason
from paddlejob.core.network import with_ipv6_warning
from paddlejob.core.observed import Observed
from paddlejob.core.paddle_env import JobContext
from paddlejob.core.pod_set import PodSet, Replica, pod_name
from paddlejob.core.policy import deadline
from paddlejob.core.policy.cleanup import deletions
from paddlejob.core.policy.holds import Hold
from paddlejob.core.recording.recorder import recorder_stage
from paddlejob.core.render import render_config_map, render_pod, render_service
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.status import plural


def converge(job: Observed) -> Plan:
    """Remove what is too much, create what is missing, connect the pods."""
    waits_for = job.gang.blocked_by(job.pods)
    phase_reason = status.live_phase(job.snapshot, job.pods, gang_waits_for=waits_for)
    stages, events = _stages(job)
    changes: dict[str, object] = {"host_port": job.host_port}
    if is_complete(job.pods):
        changes["world_size"] = world_size_of(job.pods, job.status.attempt)
    return _alive(job, with_ipv6_warning(phase_reason, job.pods), stages, changes, events=events)


def wait(job: Observed, hold: Hold) -> Plan:
    """Say what the job waits for, and do what does not have to wait."""
    if not hold.may_prepare:
        return _alive(job, hold.phase_reason, (), {}, seconds=hold.seconds)
    stages, _ = _stages(job)
    return _alive(job, hold.phase_reason, stages, {"host_port": job.host_port}, seconds=hold.seconds)


def _alive(
    job: Observed,
    phase_reason: PhaseReason,
    stages: Stages,
    changes: dict[str, object],
    *,
    events: tuple[Event, ...] = (),
    seconds: float | None = None,
) -> Plan:
    """Return the plan of a job that goes on, at a pace that others who undo it cannot drive up."""
    delay, is_round = backoff.seconds_until_retry(job.job, job.now), backoff.is_round(stages)
    is_delayed = delay > 0 and (is_round or bool(job.pods.missing))
    if is_delayed:
        stages, events, seconds = backoff.removals(stages), (), soonest(seconds, delay)
    elif is_round:
        changes |= backoff.after_round(job.job, job.now)
    alive = status.next_status(job.job, job.spec, job.pods, phase_reason, job.now, **changes)
    time_left = deadline.seconds_left(msgspec.structs.replace(job.job, status=alive), job.now)
    waits = (failures.look_again(job), elastic.look_again(job), job.gang.look_again_in_seconds)
    next_look = soonest(seconds, time_left, *waits)
    return Plan(
        alive, stages, events_when_done=events, requeue_after_seconds=next_look, is_delayed=is_delayed
    )


def _stages(job: Observed) -> tuple[Stages, tuple[Event, ...]]:
    """Return what to do, in order, and what to tell when it is done.

    With names all of them are known beforehand, so the ConfigMap comes first and no pod waits for it.
    Otherwise it comes when the last pod has its address, and the pods that wait for it are annotated.
    Nothing is created while a pod of the past is still there, of an attempt that is over or of an earlier job
    of this name: it holds a name, and it might meet the new ones. A worker that is replaced alone bars only
    its own replica. Pods of an earlier operator train on alone.
    """
    context, pods, config = job.context, job.pods, job.config
    useless = elastic.useless_standby(job)
    removed = deletions(Kind.POD, (member.pod for member in (*pods.outdated, *pods.excess, *useless)))
    has_old = any(member.attempt < job.status.base_attempt for member in pods.outdated)
    is_barred = has_old or job.given.predecessors or has_inherited_pods(pods)
    # Pods that are all there need no more from their gang, only each other's addresses.
    if is_barred or (pods.to_create and not job.gang.admitted):
        return _nonempty(job.gang.actions, removed), ()
    mark = config.fingerprint if context.knows_hosts_beforehand else None
    created = (_pods_of(context, pods, role, mark) for role, _ in context.spec.roles)
    written = _config(job.snapshot, config.data) if config.data else ()
    annotations = _annotate_pods(pods, config.fingerprint) if config.fingerprint else ()
    recorder = recorder_stage(job)
    services = _services(job.snapshot, context, pods)
    first, last = (written, ()) if context.knows_hosts_beforehand else ((), written)
    standby = _standby_pods(job.snapshot, context, pods) if job.gang.admitted else ()
    stages = _nonempty(
        job.gang.actions, removed, recorder, services, first, *created, last, annotations, standby
    )
    return stages, tuple(_events(job, removed))


def _nonempty(*stages: tuple[Action, ...]) -> Stages:
    return tuple(stage for stage in stages if stage)


def _standby_pods(snapshot: Snapshot, context: JobContext, pod_set: PodSet) -> tuple[Action, ...]:
    """Create standby pods for the workers that an elastic job runs without; they wait to be scheduled."""
    workers = snapshot.job.status.workers
    if workers <= 0 or not is_established(snapshot.job.status):
        return ()
    future = msgspec.structs.replace(context, attempt=context.attempt + 1)
    waiting = {standby_pod.replica for standby_pod in pod_set.standby}
    replicas = (
        Replica(Role.WORKER, index) for index in range(workers, snapshot.job.spec.replicas(Role.WORKER))
    )
    return tuple(
        Create(Kind.POD, pod_name(context.job.name, replica), render_pod(future, replica))
        for replica in replicas
        if replica not in waiting
    )


def _pods_of(context: JobContext, pod_set: PodSet, role: Role, config_hash: str | None) -> tuple[Action, ...]:
    return tuple(
        Create(
            Kind.POD,
            pod_name(context.job.name, replica),
            render_pod(context, replica, config_hash=config_hash),
        )
        for replica in pod_set.to_create
        if replica.role is role
    )


def _services(snapshot: Snapshot, context: JobContext, pod_set: PodSet) -> tuple[Action, ...]:
    """Return what makes the services fit; none are left of a time when pods were called by name."""
    replicas = pod_set.wanted if context.network.by_name else ()
    wanted: dict[str, Replica] = {pod_name(snapshot.job.name, replica): replica for replica in replicas}
    present = {service.metadata.name for service in snapshot.services}
    create = tuple(
        Create(Kind.SERVICE, name, render_service(context, replica))
        for name, replica in wanted.items()
        if name not in present
    )
    unwanted = (service for service in snapshot.services if service.metadata.name not in wanted)
    return (*deletions(Kind.SERVICE, unwanted), *create)


def _config(snapshot: Snapshot, data: dict[str, str]) -> tuple[Action, ...]:
    present = snapshot.config_map
    manifest = render_config_map(snapshot.job, data)
    if present is None:
        return (Create(Kind.CONFIG_MAP, snapshot.job.name, manifest),)
    if present.data == data:
        return ()
    return (ReplaceConfig(snapshot.job.name, manifest, present.metadata.resource_version),)


def _annotate_pods(pod_set: PodSet, fingerprint: str) -> tuple[Action, ...]:
    """A pod that has started keeps the mark of the ConfigMap it started with."""
    return tuple(
        AnnotatePod(member.pod.metadata.name, member.pod.metadata.uid, fingerprint)
        for member in pod_set.active
        if not member.has_started
        and member.pod.metadata.annotations.get(names.ANNOTATION_CONFIG_HASH) != fingerprint
    )


def _events(job: Observed, removed: tuple[Action, ...]) -> list[Event]:
    """Tell of pods that came or went later; that a new job gets its pods goes without saying."""
    events = []
    to_create = job.pods.to_create if job.status.phase else ()
    created = [
        plural(count, role) for role in Role if (count := sum(replica.role is role for replica in to_create))
    ]
    if created:
        events.append(Event(EventType.NORMAL, Reason.CREATED_PODS, f"created {' and '.join(created)}"))
    if removed:
        gone = ", ".join(action.name for action in removed if isinstance(action, Delete))
        events.append(Event(EventType.NORMAL, Reason.DELETED_PODS, f"deleted {gone}"))
    return events
