"""The one function to read first: what a job needs next.

    plan(snapshot) -> Plan

Guards in order, each of which may be the answer; the order is the contract:
 1. another's              leave it alone
 2. being deleted          create nothing more
 3. ended before           clean up as the policy says, never start anything again
 4. refused                create nothing and say what is wrong with the spec; judge what runs all the same
 5. suspended              take the pods away, keep everything else
 6. done, or out of time   record the verdict, then clean up
 7. broken or changed      give up, or put the job together anew
 8. alive                  converge: remove what is too much, create what is missing, connect the pods
"""

from __future__ import annotations

import msgspec

from paddlejob.api import defaulting, names, validation
from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Intranet, PaddleJobStatus, Phase, WorldSize
from paddlejob.api.validation.ports import declared_ports
from paddlejob.core import converge, endings, status
from paddlejob.core.actions import Event, EventType, Kind, Plan
from paddlejob.core.phase_reason import PhaseReason
from paddlejob.core.pod_set import Attempts, PodSet, pod_set_of
from paddlejob.core.policy import backoff, deadline, elastic, gang, legacy
from paddlejob.core.policy.cleanup import deletions, stuck_terminating
from paddlejob.core.policy.gang_queue import evicted
from paddlejob.core.policy.host_port import choose_base_port
from paddlejob.core.policy.restart import respond
from paddlejob.core.policy.success import success
from paddlejob.core.policy.world_size import NewAttempt, is_complete, was_formed, world_size_of
from paddlejob.core.reachability import unreadable_address, with_ipv6_warning
from paddlejob.core.refused import plan_invalid_spec
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.topology import JobContext

NO_PORT_RETRY_SECONDS = 30.0
TROUBLE = (Reason.INVALID_SPEC, Reason.CREATE_FAILED, Reason.NO_HOST_PORT)


def plan(snapshot: Snapshot) -> Plan:
    """Decide what one job needs now."""
    if snapshot.job.spec.managed_by not in ("", names.CONTROLLER_NAME):
        return Plan(snapshot.job.status)
    return legacy.release_finalizer(snapshot, _decide(snapshot))


def _decide(snapshot: Snapshot) -> Plan:
    job = snapshot.job
    if job.metadata.deletion_timestamp is not None:
        return _with_force(snapshot, endings.leave_to_garbage_collector(snapshot))
    spec = defaulting.effective_of(job)
    if job.status.phase.is_terminal:
        return _with_force(snapshot, endings.clean_up(snapshot, spec))
    refusals = validation.validate(job, pods_have_ipv6=snapshot.settings.pods_have_ipv6)
    if refusals:
        return _with_force(snapshot, _with_news(snapshot, plan_invalid_spec(snapshot, refusals)))
    spec = elastic.with_workers(spec, job.status.workers)
    spec = elastic.with_rendezvous(spec, job.spec, snapshot.settings.etcd_server)
    pod_set = pod_set_of(job.name, spec.roles, snapshot.pods, Attempts.of(job.status))
    if job.spec.suspend:
        return _with_force(snapshot, _with_news(snapshot, endings.suspend(snapshot, spec, pod_set)))
    return _with_force(snapshot, _with_news(snapshot, _live(snapshot, spec, pod_set)))


def _live(snapshot: Snapshot, spec: EffectiveSpec, pod_set: PodSet) -> Plan:
    """Judge, then repair, then converge."""
    job, now = snapshot.job, snapshot.now
    verdict = success(pod_set, job.spec.success_policy) or deadline.time_is_up(job, now)
    if verdict is not None:
        return endings.end(snapshot, spec, pod_set, verdict)
    host_port = _host_port(snapshot, spec)
    if host_port is None:
        return _no_port(snapshot, spec, pod_set)
    gang_state = gang.reconcile_gang(snapshot, pod_set)
    port, attempt = host_port or snapshot.settings.base_port, job.status.attempt
    context = JobContext(job, spec, port, snapshot.settings.pods_have_ipv6, attempt, gang_state.gang)
    desired_config = converge.desired_config_of(snapshot, context, pod_set)
    response = respond(snapshot, context, pod_set, desired_config.fingerprint)
    if response.verdict is not None:
        return endings.end(
            snapshot, spec, pod_set, with_ipv6_warning(response.verdict, pod_set), response.failure
        )
    new_attempt = response.new_attempt or evicted(snapshot, pod_set)
    if new_attempt is not None:
        return _begin_attempt(snapshot, spec, pod_set, new_attempt)
    if unreadable := unreadable_address(context, pod_set):
        refused = PhaseReason(Phase.PENDING, Reason.INVALID_SPEC, unreadable)
        return Plan(status.next_status(job, spec, pod_set, refused, now))
    delay = backoff.seconds_until_retry(job.status, now)
    stages, told = converge.converge(
        snapshot, context, pod_set, desired_config, may_create=gang_state.admitted
    )
    stages = (gang_state.actions, *stages) if gang_state.actions else stages
    is_delayed = delay > 0 and (bool(pod_set.missing) or backoff.is_round(stages))
    changes: dict[str, object] = {"host_port": host_port}
    if is_complete(pod_set):
        changes["world_size"] = world_size_of(pod_set, job.status.attempt)
    if is_delayed:
        stages, told = backoff.removals(stages), ()
    elif backoff.is_round(stages):
        changes |= backoff.after_round(job, now)
    phase_reason = status.live_phase(
        snapshot,
        pod_set,
        delayed=is_delayed and bool(pod_set.missing),
        gang_waits_for=gang_state.blocked_by(pod_set),
    )
    alive = status.next_status(job, spec, pod_set, with_ipv6_warning(phase_reason, pod_set), now, **changes)
    time_left = deadline.seconds_left(msgspec.structs.replace(job, status=alive), now)
    waits = (response.look_again_in_seconds, gang_state.look_again_in_seconds)
    soonest = _soonest(delay if is_delayed else None, *waits, time_left)
    return Plan(alive, stages, events_when_done=told, requeue_after_seconds=soonest, is_delayed=is_delayed)


def _begin_attempt(snapshot: Snapshot, spec: EffectiveSpec, pod_set: PodSet, new_attempt: NewAttempt) -> Plan:
    """Begin a new attempt: recorded first, then the pods go; the next pass creates what is missing."""
    old, attempt = snapshot.job.status, snapshot.job.status.attempt + 1
    failure = new_attempt.failure or old.last_failure
    in_a_row, delay = _restart_delay(snapshot, new_attempt)
    phase_reason = PhaseReason(new_attempt.phase, new_attempt.reason, new_attempt.message)
    fresh = status.next_status(
        snapshot.job,
        spec,
        pod_set,
        phase_reason,
        snapshot.now,
        attempt=attempt,
        base_attempt=attempt if new_attempt.all_pods else old.base_attempt,
        attempt_time=snapshot.now,
        consecutive_restarts=in_a_row,
        rounds=0,
        retry_time=backoff.after(snapshot.now, delay),
        restarts=old.restarts + (new_attempt.failure is not None and new_attempt.failure.counted),
        workers=old.workers if new_attempt.workers is None else new_attempt.workers,
        world_size=_kept_formation(snapshot, pod_set, new_attempt),
        last_failure=failure,
        **({"succeeded_workers": ""} if new_attempt.all_pods else {}),
    )
    gone = [member.pod for member in pod_set.standby if member.attempt != attempt]
    standby = {member.pod.metadata.uid for member in pod_set.standby}
    gone += [pod for pod in snapshot.pods if pod.metadata.uid not in standby] if new_attempt.all_pods else []
    gone += [] if new_attempt.all_pods else [member.pod for member in new_attempt.to_delete]
    stage = deletions(Kind.POD, gone)
    return Plan(fresh, (stage,) if stage else (), requeue_after_seconds=0.0)


def _restart_delay(snapshot: Snapshot, new_attempt: NewAttempt) -> tuple[int, float]:
    """Return how many restarts in a row this is, and how long it waits.

    What the user asked for is no restart. An elastic job has waited before it changes its size.
    """
    job, in_a_row = snapshot.job, backoff.restarts_in_a_row(snapshot.job.status, snapshot.now)
    is_elastic = new_attempt.workers is not None
    if new_attempt.phase is not Phase.RESTARTING:
        return in_a_row + is_elastic, 0.0
    counted = new_attempt.failure is not None and new_attempt.failure.counted
    each = backoff.restarts_each(in_a_row + 1, job, all_pods=new_attempt.all_pods)
    return in_a_row + 1, backoff.delay_seconds(job.spec.restart_policy, each, first_at_once=not counted)


def _kept_formation(snapshot: Snapshot, pod_set: PodSet, new_attempt: NewAttempt) -> WorldSize | None:
    """Pods that stay have worked with each other, and miss each other; from now on in the wanted number."""
    formed = snapshot.job.status.world_size
    if formed is None or new_attempt.all_pods or not was_formed(snapshot):
        return None
    return world_size_of(pod_set, formed.attempt)


def _host_port(snapshot: Snapshot, spec: EffectiveSpec) -> int | None:
    """Return the job's block of host ports, 0 where it needs none, None where none is left."""
    if spec.intranet is not Intranet.HOST:
        return 0
    if snapshot.job.status.host_port:
        return snapshot.job.status.host_port
    declared = frozenset[int]().union(*(declared_ports(role.template) for _, role in spec.roles))
    return choose_base_port(
        snapshot.job.metadata.uid, snapshot.settings.host_port_range, snapshot.taken_host_ports, declared
    )


def _no_port(snapshot: Snapshot, spec: EffectiveSpec, pod_set: PodSet) -> Plan:
    first, last = snapshot.settings.host_port_range
    sentence = (
        f"all host ports from {first} to {last} are in use, by other jobs or by the job's own containers; "
        "widen --port-range or wait for a job to end"
    )
    phase_reason = PhaseReason(Phase.PENDING, Reason.NO_HOST_PORT, sentence)
    waiting = status.next_status(snapshot.job, spec, pod_set, phase_reason, snapshot.now)
    return Plan(waiting, requeue_after_seconds=NO_PORT_RETRY_SECONDS)


def _with_force(snapshot: Snapshot, decided: Plan) -> Plan:
    """Remove by force the pods that should be gone for long: their node will not say so any more."""
    pods = (*snapshot.pods, *snapshot.predecessors)
    stuck, wait = stuck_terminating(pods, snapshot.now, snapshot.settings.force_delete_seconds)
    if not stuck and wait is None:
        return decided
    stages = (stuck, *decided.stages) if stuck else decided.stages
    soonest = _soonest(decided.requeue_after_seconds, wait)
    return msgspec.structs.replace(decided, stages=stages, requeue_after_seconds=soonest)


def _soonest(*waits: float | None) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)


def _with_news(snapshot: Snapshot, decided: Plan) -> Plan:
    """Add the events that the change of status deserves."""
    old, new = snapshot.job.status, decided.status
    events, is_edited = [], old.observed_generation != snapshot.job.metadata.generation
    if is_edited:
        spellings = defaulting.aliases(snapshot.job.spec)
        events = [Event(EventType.WARNING, Reason.ALIAS_USED, str(alias)) for alias in spellings]
    if new.phase is not old.phase and new.phase in status.CONDITION_PHASES:
        kind = EventType.WARNING if new.phase is Phase.FAILED else EventType.NORMAL
        events.append(Event(kind, str(new.phase), new.message))
    elif new.attempt != old.attempt:
        kind = EventType.NORMAL if new.phase is Phase.SCALING else EventType.WARNING
        events.append(Event(kind, new.reason, f"attempt {new.attempt}: {new.message}"))
    elif new.reason in TROUBLE and new.message != old.message and (is_edited or not _is_known(old, new)):
        events.append(Event(EventType.WARNING, new.reason, new.message))
    return msgspec.structs.replace(decided, events=tuple(events))


def _is_known(old: PaddleJobStatus, new: PaddleJobStatus) -> bool:
    """What is wrong with a spec changes with the spec; the rest of that message counts pods."""
    return new.reason == old.reason == Reason.INVALID_SPEC
