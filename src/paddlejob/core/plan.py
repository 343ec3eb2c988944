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
from paddlejob.api.ports import declared_ports
from paddlejob.api.v1 import Formation, Intranet, PaddleJobStatus, Phase
from paddlejob.core import converge, endings, status
from paddlejob.core.actions import Event, EventType, Kind, Plan
from paddlejob.core.classify import Attempts, Roster, roster_of
from paddlejob.core.policy import backoff, deadline, elastic, gang, legacy
from paddlejob.core.policy.cleanup import deletions, overdue
from paddlejob.core.policy.formation import Reform, formation_of, is_complete, was_formed
from paddlejob.core.policy.gang_queue import quota_loss
from paddlejob.core.policy.host_port import choose_base_port
from paddlejob.core.policy.restart import respond
from paddlejob.core.policy.success import success
from paddlejob.core.reachability import noted, unreadable_address
from paddlejob.core.refused import go_on_refused
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.standing import Standing
from paddlejob.core.topology import Site

NO_PORT_RETRY_SECONDS = 30.0
TROUBLE = (Reason.INVALID_SPEC, Reason.CREATE_FAILED, Reason.NO_HOST_PORT)


def plan(world: Snapshot) -> Plan:
    """Decide what one job needs now."""
    if world.job.spec.managed_by not in ("", names.CONTROLLER_NAME):
        return Plan(world.job.status)
    return legacy.release_finalizer(world, _decide(world))


def _decide(world: Snapshot) -> Plan:
    job = world.job
    if job.metadata.deletion_timestamp is not None:
        return _with_force(world, endings.release(world))
    spec = defaulting.effective_of(job)
    if job.status.phase.is_terminal:
        return _with_force(world, endings.tidy(world, spec))
    refusals = validation.validate(job, pods_have_ipv6=world.settings.pods_have_ipv6)
    if refusals:
        return _with_force(world, _with_news(world, go_on_refused(world, refusals)))
    spec = elastic.with_workers(spec, job.status.workers)
    spec = elastic.with_rendezvous(spec, job.spec, world.settings.etcd_server)
    roster = roster_of(job.name, spec.roles, world.pods, Attempts.of(job.status))
    if job.spec.suspend:
        return _with_force(world, _with_news(world, endings.suspend(world, spec, roster)))
    return _with_force(world, _with_news(world, _live(world, spec, roster)))


def _live(world: Snapshot, spec: EffectiveSpec, roster: Roster) -> Plan:
    """Judge, then repair, then converge."""
    job, now = world.job, world.now
    verdict = success(roster, job.spec.success_policy) or deadline.time_is_up(job, now)
    if verdict is not None:
        return endings.end(world, spec, roster, verdict)
    host_port = _host_port(world, spec)
    if host_port is None:
        return _no_port(world, spec, roster)
    gathering = gang.gather(world, roster)
    port, attempt = host_port or world.settings.base_port, job.status.attempt
    site = Site(job, spec, port, world.settings.pods_have_ipv6, attempt, gathering.gang)
    connection = converge.connection_of(world, site, roster)
    response = respond(world, site, roster, connection.fingerprint)
    if response.verdict is not None:
        return endings.end(world, spec, roster, noted(response.verdict, roster), response.failure)
    reform = response.reform or quota_loss(world, roster)
    if reform is not None:
        return _reform(world, spec, roster, reform)
    if unreadable := unreadable_address(site, roster):
        refused = Standing(Phase.PENDING, Reason.INVALID_SPEC, unreadable)
        return Plan(status.next_status(job, spec, roster, refused, now))
    delay = backoff.seconds_until_retry(job.status, now)
    stages, told = converge.converge(world, site, roster, connection, may_create=gathering.is_open)
    stages = (gathering.actions, *stages) if gathering.actions else stages
    is_delayed = delay > 0 and (bool(roster.missing) or backoff.is_round(stages))
    changes: dict[str, object] = {"host_port": host_port}
    if is_complete(roster):
        changes["formation"] = formation_of(roster, job.status.attempt)
    if is_delayed:
        stages, told = backoff.removals(stages), ()
    elif backoff.is_round(stages):
        changes |= backoff.after_round(job, now)
    standing = status.live_standing(
        world,
        roster,
        delayed=is_delayed and bool(roster.missing),
        gang_waits_for=gathering.holds_up(roster),
    )
    alive = status.next_status(job, spec, roster, noted(standing, roster), now, **changes)
    time_left = deadline.seconds_left(msgspec.structs.replace(job, status=alive), now)
    waits = (response.look_again_in_seconds, gathering.look_again_in_seconds)
    soonest = _soonest(delay if is_delayed else None, *waits, time_left)
    return Plan(alive, stages, events_when_done=told, requeue_after_seconds=soonest)


def _reform(world: Snapshot, spec: EffectiveSpec, roster: Roster, reform: Reform) -> Plan:
    """Begin a new attempt: recorded first, then the pods go; the next pass creates what is missing."""
    old, attempt = world.job.status, world.job.status.attempt + 1
    failure = reform.failure or old.last_failure
    in_a_row, delay = _restart_delay(world, reform)
    standing = Standing(reform.phase, reform.reason, reform.message)
    fresh = status.next_status(
        world.job,
        spec,
        roster,
        standing,
        world.now,
        attempt=attempt,
        base_attempt=attempt if reform.whole else old.base_attempt,
        attempt_time=world.now,
        consecutive_restarts=in_a_row,
        rounds=0,
        retry_time=backoff.after(world.now, delay),
        restarts=old.restarts + (reform.failure is not None and reform.failure.counted),
        workers=old.workers if reform.workers is None else reform.workers,
        formation=_kept_formation(world, roster, reform),
        last_failure=failure,
        **({"succeeded_workers": ""} if reform.whole else {}),
    )
    gone = [member.pod for member in roster.probes if member.attempt != attempt]
    probes = {member.pod.metadata.uid for member in roster.probes}
    gone += [pod for pod in world.pods if pod.metadata.uid not in probes] if reform.whole else []
    gone += [] if reform.whole else [member.pod for member in reform.victims]
    stage = deletions(Kind.POD, gone)
    return Plan(fresh, (stage,) if stage else (), requeue_after_seconds=0.0)


def _restart_delay(world: Snapshot, reform: Reform) -> tuple[int, float]:
    """Return how many restarts in a row this is, and how long it waits.

    What the user asked for is no restart. An elastic job has waited before it changes its size.
    """
    job, in_a_row = world.job, backoff.restarts_in_a_row(world.job.status, world.now)
    is_elastic = reform.workers is not None
    if reform.phase is not Phase.RESTARTING:
        return in_a_row + is_elastic, 0.0
    counted = reform.failure is not None and reform.failure.counted
    each = backoff.restarts_each(in_a_row + 1, job, whole=reform.whole)
    return in_a_row + 1, backoff.delay_seconds(job.spec.restart_policy, each, first_at_once=not counted)


def _kept_formation(world: Snapshot, roster: Roster, reform: Reform) -> Formation | None:
    """Pods that stay have worked with each other, and miss each other; from now on in the wanted number."""
    formed = world.job.status.formation
    if formed is None or reform.whole or not was_formed(world):
        return None
    return formation_of(roster, formed.attempt)


def _host_port(world: Snapshot, spec: EffectiveSpec) -> int | None:
    """Return the job's block of host ports, 0 where it needs none, None where none is left."""
    if spec.intranet is not Intranet.HOST:
        return 0
    if world.job.status.host_port:
        return world.job.status.host_port
    declared = frozenset[int]().union(*(declared_ports(role.template) for _, role in spec.roles))
    return choose_base_port(
        world.job.metadata.uid, world.settings.host_port_range, world.taken_host_ports, declared
    )


def _no_port(world: Snapshot, spec: EffectiveSpec, roster: Roster) -> Plan:
    first, last = world.settings.host_port_range
    sentence = (
        f"all host ports from {first} to {last} are in use, by other jobs or by the job's own containers; "
        "widen --port-range or wait for a job to end"
    )
    standing = Standing(Phase.PENDING, Reason.NO_HOST_PORT, sentence)
    waiting = status.next_status(world.job, spec, roster, standing, world.now)
    return Plan(waiting, requeue_after_seconds=NO_PORT_RETRY_SECONDS)


def _with_force(world: Snapshot, decided: Plan) -> Plan:
    """Remove by force the pods that should be gone for long: their node will not say so any more."""
    pods = (*world.pods, *world.predecessors)
    stuck, wait = overdue(pods, world.now, world.settings.force_delete_seconds)
    if not stuck and wait is None:
        return decided
    stages = (stuck, *decided.stages) if stuck else decided.stages
    soonest = _soonest(decided.requeue_after_seconds, wait)
    return msgspec.structs.replace(decided, stages=stages, requeue_after_seconds=soonest)


def _soonest(*waits: float | None) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)


def _with_news(world: Snapshot, decided: Plan) -> Plan:
    """Add the events that the change of status deserves."""
    old, new = world.job.status, decided.status
    news, is_edited = [], old.observed_generation != world.job.metadata.generation
    if is_edited:
        spellings = defaulting.aliases(world.job.spec)
        news = [Event(EventType.WARNING, Reason.ALIAS_USED, str(alias)) for alias in spellings]
    if new.phase is not old.phase and new.phase in status.CONDITION_PHASES:
        kind = EventType.WARNING if new.phase is Phase.FAILED else EventType.NORMAL
        news.append(Event(kind, str(new.phase), new.message))
    elif new.attempt != old.attempt:
        kind = EventType.NORMAL if new.phase is Phase.SCALING else EventType.WARNING
        news.append(Event(kind, new.reason, f"attempt {new.attempt}: {new.message}"))
    elif new.reason in TROUBLE and new.message != old.message and (is_edited or not _is_known(old, new)):
        news.append(Event(EventType.WARNING, new.reason, new.message))
    return msgspec.structs.replace(decided, events=tuple(news))


def _is_known(old: PaddleJobStatus, new: PaddleJobStatus) -> bool:
    """What is wrong with a spec changes with the spec; the rest of that message counts pods."""
    return new.reason == old.reason == Reason.INVALID_SPEC
