"""How a job ends: with a verdict, by cleaning up after it, by deletion."""

from __future__ import annotations

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import PaddleJobStatus, Phase, Role
from paddlejob.core import status
from paddlejob.core.actions import Delete, DeleteJob, Plan, Stages
from paddlejob.core.gang import registry
from paddlejob.core.messages import Verdict
from paddlejob.core.observed import Observed
from paddlejob.core.pod_set import Replica, observe_pod, replica_of, training_container_name
from paddlejob.core.policy import deadline
from paddlejob.core.policy.cleanup import cleanup, completed_at, created_after_end, ending_of
from paddlejob.core.snapshot import Snapshot

UNKNOWN_REPLICA = Replica(Role.WORKER, 0)
"""For a pod whose name this operator never gives; it is cleaned up like any other."""


def leave_to_garbage_collector(job: Observed) -> Plan:
    """Create nothing more; what belongs to the job goes with it."""
    leaving = msgspec.structs.replace(
        job.status, phase=Phase.TERMINATING, reason=Reason.DELETING, message="being deleted"
    )
    return Plan(leaving)


def end(job: Observed, verdict: Verdict) -> Plan:
    """Record the verdict, and the failure it is about; the shell writes it before it deletes anything."""
    changes: dict[str, object] = {"completion_time": completed_at(job.given.pods, job.now)}
    changes |= {"last_failure": verdict.failure} if verdict.failure else {}
    final = status.next_status(job.job, job.spec, job.pods, verdict.phase_reason, job.now, **changes)
    final, stages = _cleanup(job, final)
    return Plan(final, (*stages, *gang_removals(job.given)))


def clean_up(job: Observed) -> Plan:
    """Clean up after an ended job, and at the end of its time remove the job itself."""
    left = deadline.seconds_to_live(job.job, job.now)
    if left is not None and left <= 0:
        return Plan(job.status, ((DeleteJob(job.job.name, job.job.metadata.uid),),))
    final, stages = _cleanup(job, job.status)
    late = () if stages else created_after_end(job.given.pods, job.status.completion_time)
    stages = stages or ((late,) if late else ())
    return Plan(final, (*stages, *gang_removals(job.given)), requeue_after_seconds=left)


def gang_removals(snapshot: Snapshot) -> Stages:
    """A gang that is over must not hold its place in a queue."""
    removals = registry.removals(snapshot)
    return (removals,) if removals else ()


def _cleanup(job: Observed, final: PaddleJobStatus) -> tuple[PaddleJobStatus, Stages]:
    """Delete the pods that the policy does not keep, and count the others.

    Pods in excess of the wanted replicas and pods of any attempt count too.
    """
    training = {role: training_container_name(role_spec) for role, role_spec in job.spec.roles}
    replicas = ((replica_of(job.job.name, pod) or UNKNOWN_REPLICA, pod) for pod in job.given.pods)
    members = [observe_pod(replica, pod, training.get(replica.role, "")) for replica, pod in replicas]
    ending = ending_of(final.phase, final.reason)
    excess = frozenset(member.replica for member in job.pods.excess if not job.spec_errors)
    stages = cleanup(job.spec.clean_pod_policy, ending, members, job.given.services, excess)
    deleted = {action.uid for stage in stages for action in stage if isinstance(action, Delete)}
    remaining = (each for each in members if each.pod.metadata.uid not in deleted and not each.is_leaving)
    return status.with_remaining_pods(final, remaining), stages
