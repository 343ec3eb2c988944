"""How a job stops: by suspension, a verdict, the clean-up after it, and deletion."""

from __future__ import annotations

from paddlejob.api.names import Reason
from paddlejob.api.status_change import change_status
from paddlejob.api.v1 import PaddleJobStatus, Phase, Role
from paddlejob.api.validation.errors import join
from paddlejob.core import status
from paddlejob.core.actions import Delete, DeleteJob, Kind, Plan, Stages
from paddlejob.core.gang import registry
from paddlejob.core.messages import PhaseReason, Verdict
from paddlejob.core.observed import Observed, validate
from paddlejob.core.pod_set import Replica, observe_pod, replica_of, training_container_name
from paddlejob.core.policy import deadline
from paddlejob.core.policy.cleanup import cleanup, completed_at, created_after_end, deletions
from paddlejob.core.snapshot import Snapshot
from paddlejob.training import steps

UNKNOWN_REPLICA = Replica(Role.WORKER, 0)
"""Stands for a pod with an unknown name; it is cleaned up like any other."""


def leave_to_garbage_collector(job: Observed) -> Plan:
    """Create nothing more; the garbage collector deletes the job's objects."""
    leaving = change_status(
        job.status, phase=Phase.TERMINATING, reason=Reason.DELETING, message="being deleted"
    )
    return Plan(leaving)


def end(job: Observed, verdict: Verdict) -> Plan:
    """Record the verdict and its failure. The status is written before anything is deleted."""
    final = status.next_status(job.trusted, job.spec, job.pods, verdict.phase_reason, job.now)
    final = change_status(
        final,
        completion_time=completed_at(job.snapshot.pods, job.now),
        last_failure=verdict.failure or final.last_failure,
    )
    final, stages = _cleanup(job, final, is_valid=not job.spec_errors)
    return Plan(final, (*stages, *_gang_removals(job.snapshot)))


def clean_up(job: Observed) -> Plan:
    """Clean up after a finished job, and delete the job after its time to live."""
    left = deadline.seconds_to_live(job.stored, job.now)
    if left is not None and left <= 0:
        return Plan(job.status, ((DeleteJob(job.stored.name, job.stored.metadata.uid),),))
    is_valid = not (job.pods.excess and validate(job.snapshot))
    final, stages = _cleanup(job, job.status, is_valid=is_valid)
    late = () if stages else created_after_end(job.snapshot.pods, job.status.completion_time)
    stages = stages or ((late,) if late else ())
    return Plan(final, (*stages, *_gang_removals(job.snapshot)), requeue_after_seconds=left)


def suspend(job: Observed) -> Plan:
    """Delete the pods. Resuming begins a new attempt, and the clock of the deadline stops until then."""
    text = "suspended; set spec.suspend to false to resume"
    text += f", when this is corrected: {join(job.spec_errors)}" if job.spec_errors else ""
    phase_reason = PhaseReason(Phase.SUSPENDED, Reason.SUSPENDED, text)
    resting = status.next_status(job.trusted, job.spec, job.pods, phase_reason, job.now)
    if job.status.phase is not Phase.SUSPENDED:
        resting = steps.end_attempt(deadline.stop_clock(resting, job.now), counted=False)
        attempt = job.status.attempt + 1
        resting = change_status(
            resting,
            attempt=attempt,
            base_attempt=attempt,
            world_size=None,
            succeeded_workers="",
            replaced_workers="",
            moved_ranks="",
            consecutive_restarts=0,
            rounds=0,
            retry_time=None,
        )
    if not job.snapshot.pods:
        # Another job may use the ports until this one resumes, with new ports.
        resting = change_status(resting, host_port=0)
    stage = deletions(Kind.POD, job.snapshot.pods)
    return Plan(resting, (*((stage,) if stage else ()), *_gang_removals(job.snapshot)))


def _gang_removals(snapshot: Snapshot) -> Stages:
    """Return the deletion of the gang, which must not keep its place in a queue."""
    removals = registry.removals(snapshot)
    return (removals,) if removals else ()


def _cleanup(job: Observed, final: PaddleJobStatus, *, is_valid: bool) -> tuple[PaddleJobStatus, Stages]:
    """Delete or stop the pods as the policy requires, and count those that remain.

    Excess pods and pods of earlier attempts count too. `is_valid` says whether the spec is valid: an invalid
    one does not show which pods are excess.
    """
    training = {role: training_container_name(role_spec) for role, role_spec in job.spec.roles}
    replicas = ((replica_of(job.stored.name, pod) or UNKNOWN_REPLICA, pod) for pod in job.snapshot.pods)
    members = [observe_pod(replica, pod, training.get(replica.role, "")) for replica, pod in replicas]
    excess = frozenset(member.replica for member in job.pods.excess if is_valid)
    stages = cleanup(job.spec.clean_pod_policy, final.phase, members, job.snapshot.services, excess)
    deleted = {action.uid for stage in stages for action in stage if isinstance(action, Delete)}
    remaining = (each for each in members if each.pod.metadata.uid not in deleted and not each.is_leaving)
    return status.with_remaining_pods(final, remaining), stages
