"""Kueue: a job with the label of a queue waits there, as a Workload, until it is admitted.

The operator plays the role Kueue calls the job controller: it describes the pods in a Workload, creates them
on the nodes of the assigned flavors when the Workload is admitted, and deletes them and gives the quota back
when the Workload is evicted.
"""

from __future__ import annotations

import hashlib

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import Condition, JsonObject
from paddlejob.api.names import Reason
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.v1 import Failure, PaddleJob, Phase, Role
from paddlejob.core.actions import Action, Create, Delete, Kind, PatchGroup
from paddlejob.core.attempts.new_attempt import NewAttempt
from paddlejob.core.gang.choose import Choice
from paddlejob.core.gang.model import GANG_RESOURCES, Gang, GangSystem, Placement
from paddlejob.core.gang.state import GangState
from paddlejob.core.pod_set import PodSet, PodState
from paddlejob.core.snapshot import Snapshot

PREEMPTED = "Preempted"
"""The reason of an eviction after which a Workload is queued again immediately."""


class Kueue:
    """Workloads of kueue.x-k8s.io."""

    def reconcile(self, snapshot: Snapshot, pod_set: PodSet, choice: Choice) -> GangState:
        """Return the actions for the job's Workload, and whether pods may be created."""
        return _reconcile(snapshot, pod_set, choice)

    def is_outgrown(self, snapshot: Snapshot, pod_set: PodSet) -> bool:
        """Return whether the job has quota for other pods than it wants, and has not trained yet."""
        workload = _own_workload(snapshot)
        return (
            workload is not None and not _is_for(snapshot.job, workload) and not pod_set.has_trained_workers
        )

    def mark_pod(self, pod: JsonObject, gang: Gang, role: Role) -> None:
        """Do nothing: Kueue decides before there are pods."""


def _reconcile(snapshot: Snapshot, pod_set: PodSet, choice: Choice) -> GangState:
    assert choice.kind is not None
    assert snapshot.gang_apis is not None
    has_pods, name = any(pod_set.active), snapshot.job.name
    gang = Gang(GangSystem.KUEUE, name, priority_class=_priority_class(snapshot.job))
    if choice.kind not in snapshot.gang_apis.ready:
        return GangState(gang)
    workload = snapshot.pod_groups.get(choice.kind)
    if workload is None:
        return _without_workload(snapshot, choice.kind, gang, has_pods=has_pods)
    if workload.metadata.deletion_timestamp is not None:
        text = f"waiting for Workload {name} of the last attempt to terminate"
        return GangState(gang, admitted=has_pods, obstacle=text)
    if workload.metadata.controller_uid != snapshot.job.metadata.uid:
        text = f"Workload {name} of Kueue does not belong to this job; delete it or rename the job"
        return GangState(gang, admitted=has_pods, obstacle=text)
    moving = _move(snapshot, choice.kind, workload, gang)
    gang_state = moving or _with_workload(snapshot, choice.kind, workload, gang, has_pods=has_pods)
    if gang_state.admitted and _runs(pod_set) and workload.status.true_condition("PodsReady") is None:
        return msgspec.structs.replace(gang_state, actions=(_report_ready(snapshot, choice.kind, workload),))
    return gang_state


def eviction(snapshot: Snapshot, pod_set: PodSet) -> NewAttempt | None:
    """Return a new attempt if Kueue evicts a job that has pods: all of them are deleted."""
    workload = _own_workload(snapshot)
    evicted = workload.status.true_condition("Evicted") if workload else None
    if evicted is None or not any(pod_set.active):
        return None
    message = f"evicted by Kueue: {evicted.reason}: {evicted.message}".rstrip(": ")
    failure = Failure(
        attempt=snapshot.job.status.attempt,
        reason=Reason.QUOTA_LOST,
        message=message,
        time=snapshot.now,
        counted=False,
    )
    return NewAttempt(Phase.RESTARTING, Reason.QUOTA_LOST, message, failure=failure)


def workload_manifest(job: PaddleJob, kind: Kind) -> JsonObject:
    """Return the manifest of the Workload."""
    pod_sets = _pod_sets(job)
    metadata = {
        "name": job.name,
        "namespace": job.metadata.namespace,
        "labels": {names.LABEL_JOB: job.name},
        "annotations": {names.ANNOTATION_POD_SETS: _fingerprint(pod_sets)},
        "ownerReferences": [msgspec.to_builtins(job.owner_reference)],
    }
    spec = {"queueName": _wanted_queue(job), "podSets": pod_sets}
    resource = GANG_RESOURCES[kind]
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _without_workload(snapshot: Snapshot, kind: Kind, gang: Gang, *, has_pods: bool) -> GangState:
    if not _wanted_queue(snapshot.job):
        # The pods were admitted earlier, but neither the label nor a Workload shows by which queue.
        return GangState(gang)
    create = Create(kind, snapshot.job.name, workload_manifest(snapshot.job, kind))
    text = f"waiting for Kueue to see Workload {snapshot.job.name}"
    return GangState(gang, (create,), admitted=has_pods, obstacle=text)


def _move(snapshot: Snapshot, kind: Kind, workload: PodGroup, gang: Gang) -> GangState | None:
    """Move the Workload to the queue of the label, if Kueue allows it: reserved quota stays in its queue.

    Existing pods keep the quota they were admitted with. Without pods the reservation is given back.
    """
    wanted, present = _wanted_queue(snapshot.job), workload.spec.queue_name
    if not wanted or wanted == present:
        return None
    text = f"moving Workload {snapshot.job.name} from Kueue's queue {present} to {wanted}"
    metadata = workload.metadata
    if workload.status.true_condition("QuotaReserved") is None:
        version = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        patch = PatchGroup(kind, metadata.name, version, "spec", {"queueName": wanted})
        return GangState(gang, (patch,), admitted=False, obstacle=text)
    if snapshot.pods:
        return None
    return GangState(gang, (Delete(kind, metadata.name, metadata.uid),), admitted=False, obstacle=text)


def _wanted_queue(job: PaddleJob) -> str:
    """Return the queue in the job's label, which users may change or remove at any time."""
    return job.metadata.labels.get(names.LABEL_KUEUE_QUEUE, "")


def _with_workload(
    snapshot: Snapshot, kind: Kind, workload: PodGroup, gang: Gang, *, has_pods: bool
) -> GangState:
    name, status, queue = snapshot.job.name, workload.status, workload.spec.queue_name
    evicted = status.true_condition("Evicted")
    if evicted is not None:
        gives_back = not snapshot.pods and status.true_condition("QuotaReserved") is not None
        actions: tuple[Action, ...] = (_give_back(snapshot, kind, workload, evicted),) if gives_back else ()
        text = f"evicted from Kueue's queue {queue}: {evicted.reason}: {evicted.message}".rstrip(": ")
        return GangState(gang, actions, admitted=False, obstacle=text)
    if not _is_for(snapshot.job, workload):
        if snapshot.pods:
            text = (
                f"Kueue's queue {queue} has admitted other pods; suspend and resume the job to queue it again"
            )
            return GangState(gang, admitted=False, obstacle=text)
        delete = Delete(kind, name, workload.metadata.uid)
        text = f"recreating Workload {name} in Kueue's queue {queue}: the job's pods changed"
        return GangState(gang, (delete,), admitted=False, obstacle=text)
    if status.true_condition("Admitted") is None:
        text = f"waiting in Kueue's queue {queue}{_pending_reason(status.conditions)}"
        return GangState(gang, admitted=has_pods, obstacle=text)
    placements, missing = _placements(snapshot, workload)
    if missing:
        return GangState(gang, admitted=False, obstacle=f"waiting for ResourceFlavor {missing} of Kueue")
    return GangState(msgspec.structs.replace(gang, placements=placements))


def _give_back(snapshot: Snapshot, kind: Kind, workload: PodGroup, evicted: Condition) -> PatchGroup:
    """Give the quota back, now that no pod uses it. Kueue then queues the Workload again."""
    again = str(evicted.reason == PREEMPTED)
    verdicts = {
        "QuotaReserved": ("False", "Pending", evicted.message),
        "Admitted": ("False", "NoReservation", "The workload has no reservation"),
        "Requeued": (again, evicted.reason, evicted.message),
        "PodsReady": ("False", "WaitForStart", "Not all pods are ready or succeeded"),
    }
    return _report(snapshot, kind, workload, verdicts, gives_back=True)


def _report_ready(snapshot: Snapshot, kind: Kind, workload: PodGroup) -> PatchGroup:
    """Report that all pods run; otherwise a Kueue configured to wait for this evicts the job."""
    verdicts = {"PodsReady": ("True", "Started", "All pods are ready or succeeded")}
    return _report(snapshot, kind, workload, verdicts)


def _report(
    snapshot: Snapshot,
    kind: Kind,
    workload: PodGroup,
    verdicts: dict[str, tuple[str, str, str]],
    *,
    gives_back: bool = False,
) -> PatchGroup:
    """Set conditions without changing those that Kueue has set."""
    fresh = [
        Condition(about, status, reason, message, snapshot.now, workload.metadata.generation)
        for about, (status, reason, message) in verdicts.items()
    ]
    kept = [condition for condition in workload.status.conditions if condition.type not in verdicts]
    metadata = workload.metadata
    version = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
    conditions = msgspec.to_builtins([*kept, *fresh])
    changes: JsonObject = {**({"admission": None} if gives_back else {}), "conditions": conditions}
    return PatchGroup(kind, metadata.name, version, "status", changes)


def _runs(pod_set: PodSet) -> bool:
    states = [member.state for member in pod_set.active]
    up = (PodState.RUNNING, PodState.SUCCEEDED)
    return len(states) == len(pod_set.wanted) and all(state in up for state in states)


def _placements(snapshot: Snapshot, workload: PodGroup) -> tuple[dict[Role, Placement], str]:
    """Return the nodes for the pods of each role, or the name of a flavor that is not listed yet."""
    admission = workload.status.admission
    placements: dict[Role, Placement] = {}
    for assignment in admission.pod_set_assignments if admission else ():
        selector: dict[str, str] = {}
        tolerations: list[JsonObject] = []
        for name in dict.fromkeys(assignment.flavors.values()):
            flavor = snapshot.flavors.get(name)
            if flavor is None:
                return {}, name
            selector |= flavor.spec.node_labels
            tolerations += flavor.spec.tolerations
        if assignment.name in tuple(Role):
            placements[Role(assignment.name)] = Placement(selector, tuple(tolerations))
    return placements, ""


def _pending_reason(conditions: tuple[Condition, ...]) -> str:
    for kind in ("QuotaReserved", "Admitted"):
        for condition in conditions:
            if condition.type == kind and condition.status == "False" and condition.message:
                return f": {' '.join(condition.message.split())}"
    return ""


def _own_workload(snapshot: Snapshot) -> PodGroup | None:
    found = (snapshot.pod_groups.get(kind) for kind in GangSystem.KUEUE.kinds)
    ours = snapshot.job.metadata.uid
    return next((each for each in found if each and each.metadata.controller_uid == ours), None)


def _is_for(job: PaddleJob, workload: PodGroup) -> bool:
    return workload.metadata.annotations.get(names.ANNOTATION_POD_SETS) == _fingerprint(_pod_sets(job))


def _pod_sets(job: PaddleJob) -> list[JsonObject]:
    spares = {Role.WORKER: max(0, job.spec.spares)}
    return [
        {
            "name": str(role),
            "count": spec.replicas + spares.get(role, 0),
            "template": {"spec": spec.template.get("spec") or {}},
        }
        for role, spec in job.spec.roles()
    ]


def _fingerprint(pod_sets: list[JsonObject]) -> str:
    return hashlib.sha256(msgspec.json.encode(pod_sets, order="deterministic")).hexdigest()[:16]


def _priority_class(job: PaddleJob) -> str:
    return job.spec.scheduling_policy.priority_class if job.spec.scheduling_policy else ""
