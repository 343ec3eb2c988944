"""The ways a job comes to rest: ended, suspended, deleted."""

from __future__ import annotations

import msgspec

from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Failure, PaddleJobStatus, Phase, Role
from paddlejob.core import status
from paddlejob.core.actions import DeleteJob, Kind, Plan, Stages
from paddlejob.core.phase_reason import PhaseReason
from paddlejob.core.pod_set import PodSet, Replica, observe_pod, replica_of, training_container_name
from paddlejob.core.policy import deadline, gang
from paddlejob.core.policy.cleanup import cleanup, completed_at, created_after_end, deletions, ending_of
from paddlejob.core.snapshot import Snapshot

NO_SEAT = Replica(Role.WORKER, 0)
"""For a pod whose name this operator never gives; it is cleaned up like any other."""


def leave_to_garbage_collector(snapshot: Snapshot) -> Plan:
    """Leave everything to the garbage collector."""
    leaving = msgspec.structs.replace(
        snapshot.job.status, phase=Phase.TERMINATING, reason=Reason.DELETING, message="being deleted"
    )
    return Plan(leaving)


def end(
    snapshot: Snapshot,
    spec: EffectiveSpec,
    pod_set: PodSet,
    verdict: PhaseReason,
    failure: Failure | None = None,
) -> Plan:
    """Record the verdict, and the failure it is about; the shell writes it before it deletes anything."""
    changes: dict[str, object] = {"completion_time": completed_at(snapshot.pods, snapshot.now)}
    changes |= {"last_failure": failure} if failure else {}
    final = status.next_status(snapshot.job, spec, pod_set, verdict, snapshot.now, **changes)
    return Plan(final, (*_cleanup(snapshot, spec, final), *_without_gang(snapshot)))


def clean_up(snapshot: Snapshot, spec: EffectiveSpec) -> Plan:
    """Clean up after an ended job, and at the end of its time remove the job itself."""
    job = snapshot.job
    left = deadline.seconds_to_live(job, snapshot.now)
    if left is not None and left <= 0:
        return Plan(job.status, ((DeleteJob(job.name, job.metadata.uid),),))
    stages = _cleanup(snapshot, spec, job.status)
    late = () if stages else created_after_end(snapshot.pods, job.status.completion_time)
    stages = stages or ((late,) if late else ())
    return Plan(job.status, (*stages, *_without_gang(snapshot)), requeue_after_seconds=left)


def suspend(snapshot: Snapshot, spec: EffectiveSpec, pod_set: PodSet, *, obstacle: str = "") -> Plan:
    """Take the pods away. The attempt that resumes the job is a new one; the clock of its deadline stops.

    `obstacle` is what will keep the job from being resumed.
    """
    old = snapshot.job.status
    text = "suspended; set spec.suspend to false to resume"
    text += f", when this is corrected: {obstacle}" if obstacle else ""
    phase_reason = PhaseReason(Phase.SUSPENDED, Reason.SUSPENDED, text)
    changes: dict[str, object] = {}
    if old.phase is not Phase.SUSPENDED:
        changes = {
            "attempt": old.attempt + 1,
            "base_attempt": old.attempt + 1,
            "world_size": None,
            "succeeded_workers": "",
            "consecutive_restarts": 0,
            "rounds": 0,
            "retry_time": None,
            "active_since": None,
            "active_seconds": int(deadline.active_seconds(snapshot.job, snapshot.now)),
        }
    resting = status.next_status(snapshot.job, spec, pod_set, phase_reason, snapshot.now, **changes)
    stage = deletions(Kind.POD, snapshot.pods)
    return Plan(resting, (*((stage,) if stage else ()), *_without_gang(snapshot)))


def _cleanup(snapshot: Snapshot, spec: EffectiveSpec, final: PaddleJobStatus) -> Stages:
    """Delete what the policy does not keep; pods beside the wanted replicas and of any attempt count too."""
    training = {role: training_container_name(role_spec) for role, role_spec in spec.roles}
    replicas = ((replica_of(snapshot.job.name, pod) or NO_SEAT, pod) for pod in snapshot.pods)
    members = (observe_pod(replica, pod, training.get(replica.role, "")) for replica, pod in replicas)
    ending = ending_of(final.phase, final.reason)
    return cleanup(spec.clean_pod_policy, ending, members, snapshot.services)


def _without_gang(snapshot: Snapshot) -> Stages:
    """A gang that is over must not hold its place in a queue."""
    removals = gang.removals(snapshot)
    return (removals,) if removals else ()
