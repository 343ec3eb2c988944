"""The one function to read first: what a job needs next.

    plan(snapshot) -> Plan

Guards in order, each of which may be the answer; the order is the contract:
 1. being deleted          create nothing more, take off what an earlier operator left
 2. ended before           clean up as the policy says, never start anything again
 3. refused                say what is wrong with the spec, touch nothing
 4. just ended             record the verdict, then clean up
 5. alive                  converge: remove what is too much, create what is missing, connect the pods
"""

from __future__ import annotations

import msgspec

from paddlejob.api import defaulting, names, validation
from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Intranet, Phase
from paddlejob.core import converge, status
from paddlejob.core.actions import Event, EventType, Plan, RemoveFinalizer
from paddlejob.core.classify import Roster, roster_of
from paddlejob.core.policy.cleanup import cleanup
from paddlejob.core.policy.host_port import choose_base_port
from paddlejob.core.policy.verdict import judge
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.standing import Standing
from paddlejob.core.topology import Site

NO_PORT_RETRY_SECONDS = 30.0
TROUBLE = (Reason.INVALID_SPEC, Reason.CREATE_FAILED, Reason.NO_HOST_PORT)


def plan(world: Snapshot) -> Plan:
    """Decide what one job needs now."""
    job = world.job
    if job.metadata.deletion_timestamp is not None:
        return _release(world)
    spec = defaulting.effective(job.spec)
    if job.status.phase.is_terminal:
        return Plan(job.status, cleanup(spec.clean_pod_policy, job.status.phase, world.pods, world.services))
    roster = roster_of(job.name, spec.roles, world.pods)
    refusals = validation.validate(job)
    if refusals:
        return _refuse(world, spec, roster, " | ".join(str(refusal) for refusal in refusals))
    judgement = judge(roster, world.now, world.settings.server_exit_grace_seconds)
    if judgement.verdict is not None:
        return _end(world, spec, roster, judgement.verdict)
    alive = _converge(world, spec, roster)
    if judgement.look_again_in_seconds is None:
        return alive
    return msgspec.structs.replace(alive, requeue_after_seconds=judgement.look_again_in_seconds)


def _release(world: Snapshot) -> Plan:
    """Leave everything to the garbage collector; only a finalizer that nobody serves is in its way."""
    job = world.job
    leaving = msgspec.structs.replace(
        job.status, phase=Phase.TERMINATING, reason=Reason.DELETING, message="being deleted"
    )
    if names.LEGACY_FINALIZER in job.metadata.finalizers:
        return Plan(leaving, stages=((RemoveFinalizer(names.LEGACY_FINALIZER),),))
    return Plan(leaving)


def _refuse(world: Snapshot, spec: EffectiveSpec, roster: Roster, sentence: str) -> Plan:
    """Tell what is wrong. Pods of a job that was fine before the edit are left alone."""
    standing = Standing(Phase.PENDING, Reason.INVALID_SPEC, sentence)
    return _with_news(world, Plan(status.next_status(world.job, spec, roster, standing, world.now)))


def _end(world: Snapshot, spec: EffectiveSpec, roster: Roster, verdict: Standing) -> Plan:
    """Record the verdict; the shell writes the status before it deletes anything."""
    final = status.next_status(
        world.job, spec, roster, verdict, world.now, host_port=world.job.status.host_port
    )
    stages = cleanup(spec.clean_pod_policy, verdict.phase, world.pods, world.services)
    return _with_news(world, Plan(final, stages))


def _converge(world: Snapshot, spec: EffectiveSpec, roster: Roster) -> Plan:
    host_port = _host_port(world, spec)
    if host_port is None:
        return _no_port(world, spec, roster)
    standing = status.live_standing(roster, world.failures)
    alive = status.next_status(world.job, spec, roster, standing, world.now, host_port=host_port)
    port = host_port or world.settings.base_port
    site = Site(world.job, spec, port, pods_have_ipv6=_pods_have_ipv6(world))
    stages, news_when_done = converge.converge(world, site, roster)
    return _with_news(world, Plan(alive, stages, events_when_done=news_when_done))


def _host_port(world: Snapshot, spec: EffectiveSpec) -> int | None:
    """Return the job's block of host ports, 0 where it needs none, None where none is left."""
    if spec.intranet is not Intranet.HOST:
        return 0
    return world.job.status.host_port or choose_base_port(
        world.job.metadata.uid, world.settings.host_port_range, world.taken_host_ports
    )


def _no_port(world: Snapshot, spec: EffectiveSpec, roster: Roster) -> Plan:
    first, last = world.settings.host_port_range
    sentence = (
        f"all host ports from {first} to {last} are in use; widen --port-range or wait for a job to end"
    )
    standing = Standing(Phase.PENDING, Reason.NO_HOST_PORT, sentence)
    waiting = status.next_status(world.job, spec, roster, standing, world.now)
    return _with_news(world, Plan(waiting, requeue_after_seconds=NO_PORT_RETRY_SECONDS))


def _pods_have_ipv6(world: Snapshot) -> bool:
    """Believe the pods that are there before the setting."""
    seen = next((pod.status.pod_ip for pod in world.pods if pod.status.pod_ip), "")
    return ":" in seen if seen else world.settings.pods_have_ipv6


def _with_news(world: Snapshot, decided: Plan) -> Plan:
    """Add the events that the change of status deserves."""
    old, new = world.job.status, decided.status
    news = []
    if old.observed_generation != world.job.metadata.generation:
        spellings = defaulting.aliases(world.job.spec)
        news = [Event(EventType.WARNING, Reason.ALIAS_USED, str(alias)) for alias in spellings]
    if new.phase is not old.phase and new.phase in status.CONDITION_PHASES:
        kind = EventType.WARNING if new.phase is Phase.FAILED else EventType.NORMAL
        news.append(Event(kind, str(new.phase), new.message))
    elif new.reason in TROUBLE and new.message != old.message:
        news.append(Event(EventType.WARNING, new.reason, new.message))
    return msgspec.structs.replace(decided, events=tuple(news))
