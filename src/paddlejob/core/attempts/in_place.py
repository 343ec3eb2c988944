"""Which pods stay when all pods of a job would be created again, so that only their programs restart.

A pod stays if its supervisor reports and nothing suggests that the pod itself is at fault. Otherwise it is
replaced alone. All pods are created again if a restart in place has not helped twice, or if a pod that is not
a worker has to be replaced.
"""

from __future__ import annotations

import msgspec

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase, Role
from paddlejob.core.attempts import backoff
from paddlejob.core.attempts.known_errors import RECALL_ERRORS
from paddlejob.core.attempts.new_attempt import NewAttempt
from paddlejob.core.attempts.processes import template_hash
from paddlejob.core.attempts.spares import move_ranks
from paddlejob.core.observed import Observed
from paddlejob.core.pod_set import ObservedPod

MAX_RESTARTS_IN_A_ROW = 2
"""Consecutive restarts in place; the next one gets new pods, with new disks, devices and nodes."""

BLAMES_NODE = frozenset(
    (Reason.STRAGGLER, *(each.reason for each in RECALL_ERRORS.values() if each.blames_node))
)
"""Reasons of failures for which the node of the pod is suspected."""


def blames_node(new: NewAttempt) -> bool:
    return new.blames_node or (new.failure is not None and new.failure.reason in BLAMES_NODE)


def keep_pods(job: Observed, new: NewAttempt) -> NewAttempt:
    """Return the attempt with the pods to delete if the others can stay, else unchanged."""
    pods = job.pods
    is_possible = (
        new.all_pods
        and new.phase is Phase.RESTARTING
        and new.workers is None
        and new.reason != Reason.QUOTA_LOST
        and job.trusted.spec.restart_policy.in_place
        and not (pods.finished or pods.outdated or pods.excess or pods.standby or job.snapshot.predecessors)
        and backoff.restarts_in_a_row(job.status, job.now) < MAX_RESTARTS_IN_A_ROW
    )
    if not is_possible:
        return new
    leaving = tuple(member for member in pods.active if not _can_stay(job, new, member))
    has_other_roles = any(member.replica.role is not Role.WORKER for member in leaving)
    if has_other_roles or len(leaving) == len(pods.active):
        return new
    return msgspec.structs.replace(new, all_pods=False, to_delete=leaving, in_place=True)


def _can_stay(job: Observed, new: NewAttempt, member: ObservedPod) -> bool:
    """Return whether the program of a pod can be restarted in it."""
    process, pod = job.snapshot.process(member.pod), member.pod
    if process is None or not has_current_template(job, member):
        return False
    is_blamed = blames_node(new) and member in new.to_delete
    last = job.status.last_failure
    fails_again = (
        last is not None
        and new.failure is not None
        and last.pod == new.failure.pod == pod.metadata.name
        and backoff.restarts_in_a_row(job.status, job.now) > 0
    )
    # A running container of a pod on a silent node would not answer.
    is_broken = member in new.to_delete and not process.is_down
    return not (is_blamed or fails_again or is_broken)


def has_current_template(job: Observed, member: ObservedPod) -> bool:
    """Return whether the pod has a supervisor and was made from the present template of its role."""
    found = member.pod.metadata.annotations.get(names.ANNOTATION_SUPERVISED)
    return found is not None and not has_earlier_template(job, member)


def has_earlier_template(job: Observed, member: ObservedPod) -> bool:
    """Return whether the pod has a supervisor and was made from another template of its role."""
    found = member.pod.metadata.annotations.get(names.ANNOTATION_SUPERVISED)
    spec = dict(job.spec.roles).get(member.replica.role)
    return found is not None and (spec is None or found != template_hash(spec.template))


def moved_ranks(job: Observed, new: NewAttempt, suspect_nodes: tuple[str, ...]) -> dict[int, int]:
    """Return the workers that hold moved ranks in a new attempt, by rank."""
    if new.all_pods:
        return {}
    if not new.in_place:
        return job.pods.moves

    def may_take(spare: ObservedPod) -> bool:
        is_suspect = spare.pod.spec.node_name in suspect_nodes
        return not is_suspect and has_current_template(job, spare) and job.snapshot.waits_for_rank(spare.pod)

    return move_ranks(job.pods, new.to_delete, may_take)
