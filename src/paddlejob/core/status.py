"""The job's status, derived afresh from what is there; of a finished job, as it was in its last moment."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import msgspec

from paddlejob.api import names
from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.meta import Condition
from paddlejob.api.names import Reason
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase, Role, RoleStatus
from paddlejob.core import explain, index_set
from paddlejob.core.classify import Member, PodState, Roster, Seat
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.standing import Standing

NAMED_PODS = 3
"""So many pods are named where many are waited for."""

CONDITION_PHASES = (Phase.RUNNING, Phase.COMPLETED, Phase.FAILED, Phase.SUSPENDED)
"""The phases that are conditions too, so that `kubectl wait --for=condition=Completed` works."""


def live_standing(
    world: Snapshot, roster: Roster, *, delayed: bool = False, gang_waits_for: str = ""
) -> Standing:
    """Say where a job without a verdict is, and what it waits for.

    A job that is put together anew keeps the phase that says so, and why, until it runs.
    """
    if delayed and not world.failures:
        return _held_back(world, roster)
    old, fresh = world.job.status, _fresh_standing(world, roster, gang_waits_for)
    if old.phase not in (Phase.RESTARTING, Phase.SCALING) or fresh.phase is Phase.RUNNING:
        return fresh
    failure = old.last_failure if old.phase is Phase.RESTARTING else None
    why = f"; attempt {old.attempt} after {failure.message}" if failure else ""
    return Standing(old.phase, fresh.reason, f"{fresh.message}{why}")


def _held_back(world: Snapshot, roster: Roster) -> Standing:
    """Say when pods are created again, and why not now. The text stays the same until then."""
    old = world.job.status
    again = f"{old.retry_time:%H:%M:%SZ}" if old.retry_time else "once"
    if old.reason == Reason.CREATE_FAILED:
        return Standing(old.phase, old.reason, old.message)
    if old.rounds:
        phase = old.phase if old.phase in (Phase.RESTARTING, Phase.SCALING) else Phase.PENDING
        text = f"creating {roster.missing[0]} again at {again} (try {old.rounds + 1}): its pod was deleted"
        return Standing(phase, Reason.WAITING_TO_RESTART, text)
    why = f": {old.last_failure.message}" if old.last_failure else ""
    text = f"restarting at {again} (attempt {old.attempt}){why}"
    return Standing(Phase.RESTARTING, Reason.WAITING_TO_RESTART, text)


def _fresh_standing(world: Snapshot, roster: Roster, gang_waits_for: str) -> Standing:
    refused = next(iter(world.failures), None)
    if refused is not None:
        return Standing(Phase.PENDING, Reason.CREATE_FAILED, explain.refusal(refused, world.job.name))
    unsettled = [member for member in roster.active() if not _is_up(member, roster)]
    missing = len(roster.missing)
    if not unsettled and not missing:
        return Standing(Phase.RUNNING, Reason.PODS_RUNNING, f"{_tally(roster)} running")
    if world.predecessors:
        text = f"waiting for {len(world.predecessors)} pods of an earlier job of this name to be gone"
        return Standing(Phase.PENDING, Reason.WAITING_FOR_PODS, text)
    if gang_waits_for and not roster.stale:
        return Standing(Phase.PENDING, Reason.WAITING_FOR_GANG, gang_waits_for)
    if missing or any(member.state is PodState.PENDING for member in unsettled):
        return Standing(Phase.PENDING, Reason.WAITING_FOR_PODS, _waiting_for(roster, unsettled, missing))
    return Standing(Phase.STARTING, Reason.PODS_STARTING, _waiting_for(roster, unsettled, missing))


def next_status(
    job: PaddleJob,
    spec: EffectiveSpec,
    roster: Roster,
    standing: Standing,
    now: datetime,
    **changes: object,
) -> PaddleJobStatus:
    """Return the status that says all this; `changes` are further fields of it."""
    old = job.status
    ended, runs = standing.phase.is_terminal, standing.phase is Phase.RUNNING
    resumes = old.phase is Phase.SUSPENDED and standing.phase is not Phase.SUSPENDED
    started = old.start_time or (now if runs else None)
    if ended and started is None:
        started = _earliest_start(roster)
    fresh = msgspec.structs.replace(
        old,
        phase=standing.phase,
        mode=str(spec.mode),
        reason=standing.reason,
        message=standing.message,
        ps=role_status(roster, Role.PS),
        worker=role_status(roster, Role.WORKER),
        heter=role_status(roster, Role.HETER) if roster.desired(Role.HETER) else None,
        conditions=next_conditions(job, standing, now),
        start_time=started,
        completion_time=now if ended else None,
        observed_generation=job.metadata.generation,
        selector=f"{names.LABEL_JOB}={job.name},{names.LABEL_ROLE}={Role.WORKER}",
        active_since=old.active_since or (now if runs else None),
        resume_time=now if resumes else old.resume_time,
        succeeded_workers=index_set.compact(seat.index for seat in roster.finished),
    )
    return msgspec.structs.replace(fresh, **changes)


def role_status(roster: Roster, role: Role) -> RoleStatus:
    """Count the pods of a role."""
    members, finished = roster.active(role), sum(seat.role is role for seat in roster.finished)
    states = Counter(member.state for member in members if member.seat not in roster.finished)
    states[PodState.SUCCEEDED] += finished
    counts = {str(state): states[state] for state in PodState}
    ready = f"{states[PodState.RUNNING]}/{roster.desired(role)}"
    return RoleStatus(ready=ready, replicas=len(members), **counts)


def next_conditions(job: PaddleJob, standing: Standing, now: datetime) -> tuple[Condition, ...]:
    """Return one condition for each phase worth waiting for; the time moves only when the status does."""
    before = {condition.type: condition for condition in job.status.conditions}
    conditions = []
    for phase in CONDITION_PHASES:
        is_now = phase is standing.phase
        old = before.get(phase)
        changed = old is None or old.status != str(is_now)
        conditions.append(
            Condition(
                type=str(phase),
                status=str(is_now),
                reason=standing.reason,
                message=standing.message if is_now else "",
                last_transition_time=now if changed or old is None else old.last_transition_time,
                observed_generation=job.metadata.generation,
            )
        )
    return tuple(conditions)


def _is_up(member: Member, roster: Roster) -> bool:
    return member.seat in roster.finished or member.state in (PodState.RUNNING, PodState.SUCCEEDED)


def _tally(roster: Roster) -> str:
    """Such as `2 ps and 4 workers`, counting those that already ended well."""
    parts = []
    for role in Role:
        running = roster.count(role, PodState.RUNNING)
        if running:
            parts.append(plural(running, role))
    done = len(roster.finished)
    text = " and ".join(parts) or "no pods"
    return f"{plural(done, Role.WORKER)} done, {text}" if done else text


def plural(count: int, role: Role) -> str:
    """Such as `1 worker`, `2 workers`, `2 ps`."""
    return f"{count} {role}" if count == 1 or role is Role.PS else f"{count} {role}s"


def _waiting_for(roster: Roster, unsettled: list[Member], missing: int) -> str:
    leaving = [
        member
        for seat in roster.wanted
        if (member := roster.members.get(seat)) and member.is_leaving and seat not in roster.finished
    ]
    held_up = explain.first_obstacle((*unsettled, *leaving))
    total = len(roster.wanted)
    if roster.stale:
        return f"waiting for {len(roster.stale)} pods of the last attempt to be gone"
    if held_up is not None:
        member, why = held_up
        others = len(unsettled) + missing - 1
        also = f" ({others} more of {total} not running either)" if others > 0 else ""
        return f"waiting for {member.seat}: {why}{also}"
    return _laggards(roster) or f"waiting for {len(unsettled) + missing} of {total} pods to start"


def _laggards(roster: Roster) -> str:
    """Name the pods without an address where others have theirs: these only wait for those."""
    total = len(roster.wanted)
    have = {member.seat for member in roster.active() if member.pod.status.pod_ip} | roster.finished
    lacking = [seat for seat in roster.wanted if seat not in have]
    if not have or not lacking:
        return ""
    named = [f"{seat} ({_stage(roster, seat)})" for seat in lacking[:NAMED_PODS]]
    named += [f"{len(lacking) - NAMED_PODS} more"] if len(lacking) > NAMED_PODS else []
    *first, last = named
    pods = f"{', '.join(first)} and {last}" if first else last
    return f"waiting for {pods} to get an address; {len(have)} of {total} pods have one"


def _stage(roster: Roster, seat: Seat) -> str:
    member = roster.members.get(seat)
    return explain.stage(member) if member else "not created yet"


def _earliest_start(roster: Roster) -> datetime | None:
    """Find when a job began that was over before anybody saw it run."""
    moments = [
        ended.started_at
        for member in roster.active()
        if member.training and (ended := member.training.state.terminated) and ended.started_at
    ]
    return min(moments, default=None)
