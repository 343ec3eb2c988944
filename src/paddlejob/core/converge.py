"""Brings a live job's objects to the desired state, in stages that build on each other."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.status_change import change_status
from paddlejob.api.v1 import PaddleJobStatus, Phase, Role
from paddlejob.core import status
from paddlejob.core.actions import (
    Action,
    AnnotatePod,
    Create,
    Delete,
    Event,
    EventType,
    InstallRecorder,
    Kind,
    Plan,
    ReplaceConfig,
    Stages,
    soonest,
)
from paddlejob.core.attempts import backoff, elastic, failures, in_place
from paddlejob.core.attempts.inherited import has_inherited_pods
from paddlejob.core.attempts.new_attempt import is_complete, is_established, world_size_of
from paddlejob.core.attempts.processes import STOP_SECONDS
from paddlejob.core.messages import PhaseReason
from paddlejob.core.network import with_ipv6_warning
from paddlejob.core.observed import ValidJob
from paddlejob.core.paddle_env import JobContext
from paddlejob.core.pod_set import ObservedPod, PodSet, PodState, Replica, pod_name
from paddlejob.core.policy import deadline
from paddlejob.core.policy.cleanup import deletions
from paddlejob.core.policy.holds import Hold
from paddlejob.core.recorder import recorder_config_map
from paddlejob.core.render import render_config_map, render_pod, render_service
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.status import plural


def converge(job: ValidJob) -> Plan:
    """Delete excess pods, create missing objects, and connect the pods."""
    waits_for = job.gang.blocked_by(job.pods)
    phase_reason = status.live_phase(job.snapshot, job.pods, gang_waits_for=waits_for)
    stages, events = _stages(job)
    alive = _with_host_port(job, with_ipv6_warning(phase_reason, job.pods))
    if is_complete(job.pods) and not _has_outdated_programs(job):
        alive = change_status(alive, world_size=world_size_of(job.pods, job.status.attempt))
    return _pace(job, alive, stages, events=events)


def wait(job: ValidJob, hold: Hold) -> Plan:
    """Report what the job waits for, and do the work that does not have to wait."""
    if not hold.may_prepare:
        alive = status.next_status(job.trusted, job.spec, job.pods, hold.phase_reason, job.now)
        return _pace(job, alive, (), seconds=hold.seconds)
    stages, _ = _stages(job)
    return _pace(job, _with_host_port(job, hold.phase_reason), stages, seconds=hold.seconds)


def _with_host_port(job: ValidJob, phase_reason: PhaseReason) -> PaddleJobStatus:
    assert job.host_port is not None, "a job without a port is on hold"
    alive = status.next_status(job.trusted, job.spec, job.pods, phase_reason, job.now)
    return change_status(alive, host_port=job.host_port)


def _pace(
    job: ValidJob,
    alive: PaddleJobStatus,
    stages: Stages,
    *,
    events: tuple[Event, ...] = (),
    seconds: float | None = None,
) -> Plan:
    """Return the plan, with writes delayed if others keep undoing them."""
    delay, is_round = backoff.seconds_until_retry(job.trusted, job.now), backoff.is_round(stages)
    is_delayed = delay > 0 and (is_round or bool(job.pods.missing))
    if _restarts_programs(job) and not is_delayed:
        # The status was written when the restart began, and is written again when all programs run.
        alive = job.status
    elif is_delayed:
        stages, events, seconds = backoff.removals(stages), (), soonest(seconds, delay)
    elif is_round:
        alive = backoff.add_round(alive, job.trusted, job.now)
    time_left = deadline.seconds_left(msgspec.structs.replace(job.trusted, status=alive), job.now)
    waits = (
        failures.seconds_to_failure(job),
        elastic.seconds_to_resize(job.snapshot, job.spec, job.pods),
        job.gang.look_again_in_seconds,
    )
    return Plan(
        alive,
        stages,
        events_when_done=events,
        requeue_after_seconds=soonest(seconds, time_left, *waits),
        is_delayed=is_delayed,
    )


def _restarts_programs(job: ValidJob) -> bool:
    """Return whether all pods are there and a restart in place takes no longer than it should."""
    old, snapshot = job.status, job.snapshot
    is_begun = old.base_attempt < old.process_attempt == old.attempt and old.phase is Phase.RESTARTING
    is_quick = snapshot.attempt_seconds < STOP_SECONDS and not (job.pods.missing or snapshot.failures)
    return is_begun and is_quick and snapshot.published_attempt < old.process_attempt


def _stages(job: ValidJob) -> tuple[Stages, tuple[Event, ...]]:
    """Return the actions in order, and the events for when they are done.

    If pods are called by name, all endpoints are known before any pod runs: the ConfigMap is created first,
    and no pod waits for it. Otherwise the ConfigMap follows when the last pod has its address, and the
    waiting pods are annotated.

    Nothing is created while a pod of an earlier attempt or of a deleted job with the same name exists: it
    holds a name, and new pods could connect to it. A worker that is replaced alone blocks only its own
    replica. Pods of an earlier operator train on without new ones.
    """
    context, pods, config = job.context, job.pods, job.config
    useless = (*elastic.useless_standby(job.trusted, pods), *_useless_spares(job))
    removed = deletions(Kind.POD, (member.pod for member in (*pods.outdated, *pods.excess, *useless)))
    has_old = any(member.attempt < job.status.base_attempt for member in pods.outdated)
    is_barred = has_old or job.snapshot.predecessors or has_inherited_pods(pods)
    # If all pods exist, they need only each other's addresses, not their gang.
    if is_barred or (pods.to_create and not job.gang.admitted):
        return _nonempty(job.gang.actions, removed), ()
    mark = config.fingerprint if context.knows_hosts_beforehand else None
    created = (_pods_of(context, pods, role, mark) for role, _ in context.spec.roles)
    # The ConfigMap lets the next programs start, so those of earlier attempts must have ended.
    may_connect = not job.stopping
    written = _config(job.snapshot, config.data) if config.data and may_connect else ()
    annotations = _annotate_pods(job.snapshot, pods, config.fingerprint) if may_connect else ()
    recorder = _recorder_stage(job)
    services = _services(job.snapshot, context, pods)
    first, last = (written, ()) if context.knows_hosts_beforehand else ((), written)
    standby = _standby_pods(job.snapshot, context, pods) if job.gang.admitted else ()
    spares = _spare_pods(context, pods) if job.gang.admitted else ()
    stages = _nonempty(
        job.gang.actions, removed, recorder, services, first, *created, last, annotations, standby, spares
    )
    return stages, tuple(_events(job, removed))


def _nonempty(*stages: tuple[Action, ...]) -> Stages:
    return tuple(stage for stage in stages if stage)


def _recorder_stage(job: ValidJob) -> tuple[Action, ...]:
    """Create the recorder's ConfigMap if it is missing and pods are still to mount it."""
    recorder, pods = job.context.recorder, job.pods
    if recorder is None or job.snapshot.has_recorder:
        return ()
    starting = (member.replica for member in pods.active if not member.has_started)
    if all(replica.role is Role.PS for replica in (*pods.to_create, *pods.spares_to_create, *starting)):
        return ()
    return (InstallRecorder(recorder.name, recorder_config_map(job.trusted, recorder)),)


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


def _spare_pods(context: JobContext, pod_set: PodSet) -> tuple[Action, ...]:
    """Create the pods that wait without a rank."""
    return tuple(
        Create(Kind.POD, pod_name(context.job.name, replica), render_pod(context, replica, is_spare=True))
        for replica in pod_set.spares_to_create
    )


def _useless_spares(job: ValidJob) -> Iterator[ObservedPod]:
    """Yield the spares that have ended or were made from an earlier template."""
    ended = (PodState.SUCCEEDED, PodState.FAILED)
    for spare in job.pods.spares:
        if spare.state in ended or in_place.has_earlier_template(job, spare):
            yield spare


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
    """Create missing services and delete unwanted ones; only pods called by name have services."""
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


def _has_outdated_programs(job: ValidJob) -> bool:
    return any(map(job.snapshot.is_outdated, job.snapshot.pods))


def _annotate_pods(snapshot: Snapshot, pod_set: PodSet, fingerprint: str | None) -> tuple[Action, ...]:
    """Annotate the pods that wait for the ConfigMap; started pods keep the hash they started with.

    Supervisors get the environment with their orders.
    """
    if fingerprint is None:
        return ()
    return tuple(
        AnnotatePod(member.pod.metadata.name, member.pod.metadata.uid, fingerprint)
        for member in pod_set.active
        if not member.has_started
        and snapshot.process(member.pod) is None
        and member.pod.metadata.annotations.get(names.ANNOTATION_CONFIG_HASH) != fingerprint
    )


def _events(job: ValidJob, removed: tuple[Action, ...]) -> list[Event]:
    """Return events for created and deleted pods, except for the first pods of a new job."""
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
