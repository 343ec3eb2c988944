"""The ways a job comes to rest: ended, suspended, deleted."""

from __future__ import annotations

import msgspec

from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Failure, PaddleJobStatus, Phase, Role
from paddlejob.core import status
from paddlejob.core.actions import DeleteJob, Kind, Plan, Stages
from paddlejob.core.classify import Roster, Seat, member_of, seat_of, training_container_name
from paddlejob.core.policy import deadline, gang
from paddlejob.core.policy.cleanup import born_too_late, cleanup, completed_at, deletions, ending_of
from paddlejob.core.snapshot import Snapshot
from paddlejob.core.standing import Standing

NO_SEAT = Seat(Role.WORKER, 0)
"""For a pod whose name this operator never gives; it is cleaned up like any other."""


def release(world: Snapshot) -> Plan:
    """Leave everything to the garbage collector."""
    leaving = msgspec.structs.replace(
        world.job.status, phase=Phase.TERMINATING, reason=Reason.DELETING, message="being deleted"
    )
    return Plan(leaving)


def end(
    world: Snapshot, spec: EffectiveSpec, roster: Roster, verdict: Standing, failure: Failure | None = None
) -> Plan:
    """Record the verdict, and the failure it is about; the shell writes it before it deletes anything."""
    changes: dict[str, object] = {"completion_time": completed_at(world.pods, world.now)}
    changes |= {"last_failure": failure} if failure else {}
    final = status.next_status(world.job, spec, roster, verdict, world.now, **changes)
    return Plan(final, (*_cleanup(world, spec, final), *_without_gang(world)))


def tidy(world: Snapshot, spec: EffectiveSpec) -> Plan:
    """Clean up after an ended job, and at the end of its time remove the job itself."""
    job = world.job
    left = deadline.seconds_to_live(job, world.now)
    if left is not None and left <= 0:
        return Plan(job.status, ((DeleteJob(job.name, job.metadata.uid),),))
    stages = _cleanup(world, spec, job.status)
    late = () if stages else born_too_late(world.pods, job.status.completion_time)
    stages = stages or ((late,) if late else ())
    return Plan(job.status, (*stages, *_without_gang(world)), requeue_after_seconds=left)


def suspend(world: Snapshot, spec: EffectiveSpec, roster: Roster, *, obstacle: str = "") -> Plan:
    """Take the pods away. The attempt that resumes the job is a new one; the clock of its deadline stops.

    `obstacle` is what will keep the job from being resumed.
    """
    old = world.job.status
    text = "suspended; set spec.suspend to false to resume"
    text += f", when this is corrected: {obstacle}" if obstacle else ""
    standing = Standing(Phase.SUSPENDED, Reason.SUSPENDED, text)
    changes: dict[str, object] = {}
    if old.phase is not Phase.SUSPENDED:
        changes = {
            "attempt": old.attempt + 1,
            "base_attempt": old.attempt + 1,
            "formation": None,
            "succeeded_workers": "",
            "consecutive_restarts": 0,
            "rounds": 0,
            "retry_time": None,
            "active_since": None,
            "active_seconds": int(deadline.active_seconds(world.job, world.now)),
        }
    resting = status.next_status(world.job, spec, roster, standing, world.now, **changes)
    stage = deletions(Kind.POD, world.pods)
    return Plan(resting, (*((stage,) if stage else ()), *_without_gang(world)))


def _cleanup(world: Snapshot, spec: EffectiveSpec, final: PaddleJobStatus) -> Stages:
    """Delete what the policy does not keep; pods beside the wanted seats and of any attempt count too."""
    training = {role: training_container_name(role_spec) for role, role_spec in spec.roles}
    seats = ((seat_of(world.job.name, pod) or NO_SEAT, pod) for pod in world.pods)
    members = (member_of(seat, pod, training.get(seat.role, "")) for seat, pod in seats)
    ending = ending_of(final.phase, final.reason)
    return cleanup(spec.clean_pod_policy, ending, members, world.services)


def _without_gang(world: Snapshot) -> Stages:
    """A gang that is over must not hold its place in a queue."""
    removals = gang.removals(world)
    return (removals,) if removals else ()
