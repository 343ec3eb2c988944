"""Derives a job's status from its current objects, or from the last observed ones once it has finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sized
from datetime import datetime

from paddlejob.api import index_set, names
from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.meta import Condition
from paddlejob.api.names import Reason
from paddlejob.api.status_change import change_status
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase, Role, RoleStatus
from paddlejob.core import explain
from paddlejob.core.actions import Kind
from paddlejob.core.attempts import backoff
from paddlejob.core.attempts.spares import ready_text
from paddlejob.core.messages import PhaseReason
from paddlejob.core.pod_set import ObservedPod, PodSet, PodState, Replica, pod_name
from paddlejob.core.snapshot import Snapshot, WriteFailure
from paddlejob.training import steps
from paddlejob.training.findings import Hang, IdleAccelerators, Slowdown

NAMED_PODS = 3
"""How many of the pods that a job waits for are listed by name."""

CONDITION_PHASES = (Phase.RUNNING, Phase.COMPLETED, Phase.FAILED, Phase.SUSPENDED)
"""Phases that are also conditions, so that `kubectl wait --for=condition=Completed` works."""


def live_phase(
    snapshot: Snapshot, pod_set: PodSet, *, delayed: bool = False, gang_waits_for: str = ""
) -> PhaseReason:
    """Return the phase of an unfinished job and what it is waiting for.

    A job in a new attempt stays Restarting or Scaling, with the cause in its message, until it runs.
    """
    if delayed and not snapshot.failures:
        return _delayed_phase(snapshot, pod_set)
    old, fresh = snapshot.job.status, _observed_phase(snapshot, pod_set, gang_waits_for)
    if old.phase not in (Phase.RESTARTING, Phase.SCALING) or fresh.phase is Phase.RUNNING:
        return fresh
    failure = old.last_failure if old.phase is Phase.RESTARTING else None
    why = f" (attempt {old.attempt}: {failure.message})" if failure else ""
    return PhaseReason(old.phase, fresh.reason, f"{fresh.message}{why}")


def _delayed_phase(snapshot: Snapshot, pod_set: PodSet) -> PhaseReason:
    """Return when and why pods are created again. The message stays the same until then."""
    old = snapshot.job.status
    again = f"{old.retry_time:%H:%M:%SZ}" if old.retry_time else "once"
    if old.reason == Reason.CREATE_FAILED:
        return PhaseReason(old.phase, old.reason, old.message)
    if old.rounds:
        phase = old.phase if old.phase in (Phase.RESTARTING, Phase.SCALING) else Phase.PENDING
        text = f"creating {pod_set.missing[0]} again at {again} (try {old.rounds + 1}): its pod was deleted"
        return PhaseReason(phase, Reason.WAITING_TO_RESTART, text)
    why = f": {old.last_failure.message}" if old.last_failure else ""
    text = f"restarting at {again} (attempt {old.attempt}){why}"
    return PhaseReason(Phase.RESTARTING, Reason.WAITING_TO_RESTART, text)


def _observed_phase(snapshot: Snapshot, pod_set: PodSet, gang_waits_for: str) -> PhaseReason:
    """Derive the phase from the pods; a rejected write changes only the message."""
    unsettled = [member for member in pod_set.active if not _is_up(member, pod_set)]
    missing = len(pod_set.missing)
    if not unsettled and not missing:
        refusals = (f"; {explain.refusal(each, snapshot.job.name)}" for each in snapshot.failures)
        hang = snapshot.finding(Hang)
        found = (hang or snapshot.finding(Slowdown), snapshot.finding(IdleAccelerators))
        notes = (*(each.message for each in found if each), _given_up(pod_set), snapshot.recorder_note)
        remarks = "".join(f"; {note}" for note in notes if note)
        text = f"{_tally(snapshot, pod_set)} running{remarks}{next(refusals, '')}"
        if hang is not None:
            return PhaseReason(Phase.RUNNING, Reason.HUNG, text, hang=hang.message)
        return PhaseReason(Phase.RUNNING, Reason.PODS_RUNNING, text)
    is_pending = missing or any(member.state is PodState.PENDING for member in unsettled)
    phase = Phase.PENDING if is_pending else Phase.STARTING
    refused = next((each for each in snapshot.failures if not _is_standby(each, snapshot, pod_set)), None)
    if refused is not None:
        return PhaseReason(phase, Reason.CREATE_FAILED, explain.refusal(refused, snapshot.job.name))
    if snapshot.predecessors:
        text = f"waiting for {_pods(snapshot.predecessors)} of a deleted job with the same name to terminate"
        return PhaseReason(Phase.PENDING, Reason.WAITING_FOR_PODS, text)
    if gang_waits_for and not pod_set.outdated:
        return PhaseReason(Phase.PENDING, Reason.WAITING_FOR_GANG, gang_waits_for)
    reason = Reason.WAITING_FOR_PODS if is_pending else Reason.PODS_STARTING
    return PhaseReason(phase, reason, _waiting_for(pod_set, unsettled, missing))


def _is_standby(failure: WriteFailure, snapshot: Snapshot, pod_set: PodSet) -> bool:
    """Return whether the pod was to be a standby of an elastic job, which the job does not wait for."""
    names_wanted = {pod_name(snapshot.job.name, replica) for replica in pod_set.wanted}
    return (failure.verb, failure.kind) == ("create", Kind.POD) and failure.name not in names_wanted


def next_status(
    job: PaddleJob,
    spec: EffectiveSpec,
    pod_set: PodSet,
    phase_reason: PhaseReason,
    now: datetime,
) -> PaddleJobStatus:
    """Return the status in a phase with the pods that exist."""
    old = job.status
    ended, runs = phase_reason.phase.is_terminal, phase_reason.phase is Phase.RUNNING
    resumes = old.phase is Phase.SUSPENDED and phase_reason.phase is not Phase.SUSPENDED
    stops = old.phase is Phase.RUNNING and not runs and not ended
    started = old.start_time or (now if runs else None)
    is_active = runs or _has_pods_again(old, pod_set, phase_reason)
    if ended and started is None:
        started = _earliest_start(pod_set, job, now)
    return change_status(
        old,
        phase=phase_reason.phase,
        mode=str(spec.mode),
        reason=phase_reason.reason,
        message=phase_reason.message,
        ps=role_status(pod_set, Role.PS),
        worker=role_status(pod_set, Role.WORKER),
        spares="" if ended else ready_text(pod_set),
        heter=role_status(pod_set, Role.HETER) if pod_set.desired(Role.HETER) else None,
        conditions=next_conditions(job, phase_reason, now),
        start_time=started,
        completion_time=now if ended else None,
        progress=steps.at_end(old.progress, phase_reason.phase) if ended and old.progress else old.progress,
        observed_generation=job.metadata.generation,
        selector=f"{names.LABEL_JOB}={job.name},{names.LABEL_ROLE}={Role.WORKER}",
        active_since=old.active_since or (now if is_active else None),
        resume_time=now if resumes else old.resume_time,
        # The pod that ends this run may disappear later, when the Running condition is already False.
        consecutive_restarts=backoff.restarts_in_a_row(old, now) if stops else old.consecutive_restarts,
        succeeded_workers=index_set.compact(replica.index for replica in pod_set.finished),
    )


def _has_pods_again(old: PaddleJobStatus, pod_set: PodSet, phase_reason: PhaseReason) -> bool:
    """Return whether a job has pods again after a suspension or the loss of its quota."""
    waits = phase_reason.phase.is_terminal or phase_reason.reason == Reason.WAITING_FOR_GANG
    return old.start_time is not None and bool(pod_set.active) and not waits


def role_status(pod_set: PodSet, role: Role) -> RoleStatus:
    members, finished = pod_set.active_in(role), sum(replica.role is role for replica in pod_set.finished)
    states = Counter(member.state for member in members if member.replica not in pod_set.finished)
    states[PodState.SUCCEEDED] += finished
    return RoleStatus(
        ready=f"{states[PodState.RUNNING]}/{pod_set.desired(role)}",
        replicas=len(members),
        pending=states[PodState.PENDING],
        starting=states[PodState.STARTING],
        running=states[PodState.RUNNING],
        failed=states[PodState.FAILED],
        succeeded=states[PodState.SUCCEEDED],
        unknown=states[PodState.UNKNOWN],
    )


def with_remaining_pods(ended: PaddleJobStatus, remaining: Iterable[ObservedPod]) -> PaddleJobStatus:
    """Return the status of an ended job with counts of the remaining pods.

    The counts of succeeded and failed pods stay as they were at the end. So does `ready` of the servers of a
    completed job, because its last worker ended while all of them were ready.
    """
    states: dict[Role, Counter[PodState]] = {role: Counter() for role in Role}
    for member in remaining:
        states[member.replica.role][member.state] += 1
    is_completed = ended.phase is Phase.COMPLETED
    return change_status(
        ended,
        ps=_remaining(ended.ps, states[Role.PS], keeps_ready=is_completed),
        worker=_remaining(ended.worker, states[Role.WORKER], keeps_ready=False),
        heter=_remaining(ended.heter, states[Role.HETER], keeps_ready=is_completed),
    )


def _remaining(role: RoleStatus | None, states: Counter[PodState], *, keeps_ready: bool) -> RoleStatus | None:
    if role is None:
        return None
    # The spec of an ended job may have another number of replicas by now.
    wanted = role.ready.rpartition("/")[2]
    return RoleStatus(
        ready=role.ready if keeps_ready else f"{states[PodState.RUNNING]}/{wanted}",
        replicas=states.total(),
        pending=states[PodState.PENDING],
        starting=states[PodState.STARTING],
        running=states[PodState.RUNNING],
        failed=role.failed,
        succeeded=role.succeeded,
        unknown=states[PodState.UNKNOWN],
    )


def next_conditions(job: PaddleJob, phase_reason: PhaseReason, now: datetime) -> tuple[Condition, ...]:
    """Return one condition for each of the CONDITION_PHASES, and one for a hang.

    The transition time changes only with the condition's status.
    """
    before = {condition.type: condition for condition in job.status.conditions}
    messages = {str(phase): phase_reason.message for phase in CONDITION_PHASES if phase is phase_reason.phase}
    if phase_reason.hang:
        messages[Reason.HUNG] = phase_reason.hang
    conditions = []
    for kind in (*map(str, CONDITION_PHASES), Reason.HUNG):
        old, is_now = before.get(kind), str(kind in messages)
        conditions.append(
            Condition(
                type=kind,
                status=is_now,
                reason=phase_reason.reason,
                message=messages.get(kind, ""),
                last_transition_time=now if old is None or old.status != is_now else old.last_transition_time,
                observed_generation=job.metadata.generation,
            )
        )
    return tuple(conditions)


def _is_up(member: ObservedPod, pod_set: PodSet) -> bool:
    settled = pod_set.finished | pod_set.given_up
    return member.replica in settled or member.state in (PodState.RUNNING, PodState.SUCCEEDED)


def _given_up(pod_set: PodSet) -> str:
    """Name the first worker that the job trains without, and its obstacle."""
    waiting = [member for member in pod_set.active if member.replica in pod_set.given_up]
    if not waiting:
        return ""
    member, why = explain.first_obstacle(waiting) or (waiting[0], "no node yet")
    return f"waiting for {member.replica}: {why}"


def _tally(snapshot: Snapshot, pod_set: PodSet) -> str:
    """Return `2 ps and 4 workers`, or `1 worker done, 2 of 4 workers` for an elastic job."""
    parts = []
    for role in Role:
        running, asked = pod_set.count(role, PodState.RUNNING), snapshot.job.spec.replicas(role)
        if running:
            lacking = sum(replica.role is role for replica in pod_set.given_up)
            fewer = f"{running} of " if pod_set.desired(role) - lacking < asked else ""
            parts.append(f"{fewer}{plural(asked if fewer else running, role)}")
    done = len(pod_set.finished)
    text = " and ".join(parts) or "no pods"
    return f"{plural(done, Role.WORKER)} done, {text}" if done else text


def _pods(some: Sized) -> str:
    return "1 pod" if len(some) == 1 else f"{len(some)} pods"


def plural(count: int, role: Role) -> str:
    """Return `1 worker`, `2 workers` or `2 ps`."""
    return f"{count} {role}" if count == 1 or role is Role.PS else f"{count} {role}s"


def _waiting_for(pod_set: PodSet, unsettled: list[ObservedPod], missing: int) -> str:
    leaving = [
        member
        for replica in pod_set.wanted
        if (member := pod_set.members.get(replica)) and member.is_leaving and replica not in pod_set.finished
    ]
    held_up = explain.first_obstacle((*unsettled, *leaving))
    total = len(pod_set.wanted)
    if pod_set.outdated:
        return f"waiting for {_pods(pod_set.outdated)} of the last attempt to terminate"
    if held_up is not None:
        member, why = held_up
        others = len(unsettled) + missing - 1
        also = f" ({others} more of {total} pods are not running)" if others > 0 else ""
        return f"waiting for {member.replica}: {why}{also}"
    return _laggards(pod_set) or f"waiting for {len(unsettled) + missing} of {total} pods to start"


def _laggards(pod_set: PodSet) -> str:
    """Name the pods without an address if others have theirs and wait for these."""
    total = len(pod_set.wanted)
    have = {member.replica for member in pod_set.active if member.pod.status.pod_ip} | pod_set.finished
    lacking = [replica for replica in pod_set.wanted if replica not in have]
    if not have or not lacking:
        return ""
    named = [f"{replica} ({_stage(pod_set, replica)})" for replica in lacking[:NAMED_PODS]]
    named += [f"{len(lacking) - NAMED_PODS} more"] if len(lacking) > NAMED_PODS else []
    *first, last = named
    pods = f"{', '.join(first)} and {last}" if first else last
    return f"waiting for {pods} to get an address; {len(have)} of {total} pods have one"


def _stage(pod_set: PodSet, replica: Replica) -> str:
    member = pod_set.members.get(replica)
    return explain.stage(member) if member else "not created yet"


def _earliest_start(pod_set: PodSet, job: PaddleJob, now: datetime) -> datetime | None:
    """Return the start of a job that ended before it was seen Running, limited to its lifetime."""
    moments = [
        ended.started_at
        for member in pod_set.active
        if member.training and (ended := member.training.state.terminated) and ended.started_at
    ]
    if not moments:
        return None
    return min(now, max(min(moments), job.metadata.creation_timestamp or min(moments)))
