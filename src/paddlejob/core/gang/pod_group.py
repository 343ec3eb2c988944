"""Gangs that are PodGroups: created before their pods, adjusted with the job, deleted when the job ends.

A PodGroup that the user created is never changed or deleted. Existing pods are never deleted because of their
PodGroup; only new pods wait for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import LONG_AGO, JsonObject
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.actions import Action, Create, Kind, PatchGroup
from paddlejob.core.attempts.elastic import worker_range
from paddlejob.core.gang.choose import Choice, scheduler_names
from paddlejob.core.gang.model import GANG_RESOURCES, Gang, GangSystem
from paddlejob.core.gang.state import GangState
from paddlejob.core.pod_set import PodSet
from paddlejob.core.snapshot import Snapshot

USERS_GROUP_GRACE_SECONDS = 5.0
"""How long a job that names Volcano's scheduler waits for the user's PodGroup.

Manifests often have the job and its PodGroup in one file. The operator must not create the PodGroup first.
"""
_UNSCHEDULABLE = {
    "Unschedulable": "True",
    "PodGroupScheduled": "False",
    "PodGroupInitiallyScheduled": "False",
}
_SCHEDULED = "Scheduled"


class PodGroupAdapter(ABC):
    """Base of the adapters for Volcano and for Kubernetes' own gangs."""

    system: GangSystem
    creates_pods_first: bool
    """Whether pods may be created before the scheduler has seen the PodGroup."""

    @abstractmethod
    def desired(self, job: PaddleJob, pod_set: PodSet, kind: Kind) -> JsonObject:
        """Return the spec of the operator's own PodGroup."""

    @abstractmethod
    def changes(self, wanted: JsonObject, group: PodGroup) -> JsonObject:
        """Return the merge patch from a PodGroup's spec to the wanted one, empty if they are equal."""

    @abstractmethod
    def state(
        self,
        snapshot: Snapshot,
        group: PodGroup,
        gang: Gang | None,
        actions: tuple[Action, ...],
        *,
        has_pods: bool,
    ) -> GangState:
        """Return the state of the gang with an existing PodGroup."""

    def reconcile(self, snapshot: Snapshot, pod_set: PodSet, choice: Choice) -> GangState:
        """Return the actions for the job's PodGroup, and whether pods may be created."""
        assert choice.kind is not None
        assert snapshot.gang_apis is not None
        gang, has_pods, name = self.gang(snapshot, pod_set), any(pod_set.active), snapshot.job.name
        if choice.kind not in snapshot.gang_apis.ready:
            return GangState(gang)
        group = snapshot.pod_groups.get(choice.kind)
        if group is None:
            return self._without_group(snapshot, pod_set, choice, gang)
        if group.metadata.deletion_timestamp is not None:
            text = f"waiting for PodGroup {name} of the last attempt to terminate"
            return GangState(gang, admitted=has_pods, obstacle=text)
        if group.metadata.controller_uid not in ("", snapshot.job.metadata.uid):
            text = f"waiting for PodGroup {name} of another owner to be deleted"
            return GangState(gang, admitted=has_pods, obstacle=text)
        is_ours = group.metadata.controller_uid == snapshot.job.metadata.uid
        actions = self._adjustments(snapshot, pod_set, choice.kind, group) if is_ours else ()
        return self.state(snapshot, group, gang, actions, has_pods=has_pods)

    def is_outgrown(self, snapshot: Snapshot, pod_set: PodSet) -> bool:  # noqa: ARG002  (for adapters that need it)
        """Return False: a PodGroup follows the job by a patch."""
        return False

    def gang(self, snapshot: Snapshot, pod_set: PodSet) -> Gang | None:  # noqa: ARG002  (for adapters that need it)
        """Return the gang of new pods, None if they are scheduled alone."""
        policy = snapshot.job.spec.scheduling_policy
        queue, priority = (policy.queue, policy.priority_class) if policy else ("", "")
        return Gang(self.system, snapshot.job.name, queue, priority)

    def adjust(
        self,
        snapshot: Snapshot,  # noqa: ARG002  (for adapters that need it)
        kind: Kind,
        group: PodGroup,
        changes: JsonObject,
    ) -> tuple[Action, ...]:
        """Return the actions that adjust our own PodGroup to the job."""
        metadata = group.metadata
        return (PatchGroup(kind, metadata.name, {"uid": metadata.uid}, "spec", changes),)

    def _adjustments(
        self, snapshot: Snapshot, pod_set: PodSet, kind: Kind, group: PodGroup
    ) -> tuple[Action, ...]:
        changes = self.changes(self.desired(snapshot.job, pod_set, kind), group)
        return self.adjust(snapshot, kind, group, changes) if changes else ()

    def _without_group(
        self, snapshot: Snapshot, pod_set: PodSet, choice: Choice, gang: Gang | None
    ) -> GangState:
        assert choice.kind is not None
        name, has_pods = snapshot.job.name, any(pod_set.active)
        spec = self.desired(snapshot.job, pod_set, choice.kind)
        if not choice.may_create:
            text = (
                f"waiting for PodGroup {name}, which does not exist; create one with minMember "
                f"{spec['minMember']} in this namespace, or set spec.schedulingPolicy"
            )
            return GangState(gang, admitted=has_pods, obstacle=text)
        left = _grace_left(snapshot)
        if left > 0 and not has_pods:
            text = f"waiting briefly for the user to create PodGroup {name}"
            return GangState(gang, admitted=False, obstacle=text, look_again_in_seconds=left)
        create = Create(choice.kind, name, _manifest(snapshot.job, choice.kind, spec))
        admitted = has_pods or self.creates_pods_first
        return GangState(
            gang, (create,), admitted=admitted, obstacle=f"waiting for PodGroup {name}: just created"
        )


def least_pods(job: PaddleJob, pod_set: PodSet) -> dict[Role, int]:
    """Return how many pods of each role must be scheduled together.

    All of them, but only the minimum of an elastic job's workers. `minAvailable` counts pods in the order of
    their creation. Workers that have succeeded do not count: their pods may be gone and are not replaced.
    """
    spec, policy = job.spec, job.spec.scheduling_policy
    counts = {role: role_spec.replicas for role, role_spec in spec.roles()}
    bounds = worker_range(spec)
    if policy is not None and policy.min_available:
        left = policy.min_available
        for role, count in counts.items():
            counts[role] = min(count, left)
            left -= counts[role]
    elif bounds is not None:
        counts[Role.WORKER] = min(bounds.least, counts[Role.WORKER])
    still_to_run = pod_set.desired(Role.WORKER) - len(pod_set.finished)
    counts[Role.WORKER] = min(counts[Role.WORKER], still_to_run)
    if policy is None or not policy.min_available:
        counts[Role.WORKER] += len(pod_set.idle)
    return counts


def unschedulable_reason(group: PodGroup) -> str:
    """Return the scheduler's reason for not placing a gang, empty if there is none.

    The latest condition counts: Volcano does not remove the condition of a gang that did not fit, but adds
    another one when it fits.
    """
    words = [
        condition for condition in group.status.conditions if condition.type in (*_UNSCHEDULABLE, _SCHEDULED)
    ]
    latest = max(words, key=lambda condition: condition.last_transition_time or LONG_AGO, default=None)
    if latest is None or _UNSCHEDULABLE.get(latest.type) != latest.status:
        return ""
    return f"{latest.reason}: {' '.join(latest.message.split())}".strip(": ")


def _grace_left(snapshot: Snapshot) -> float:
    created = snapshot.job.metadata.creation_timestamp
    if created is None or names.VOLCANO not in scheduler_names(snapshot.job).values():
        return 0.0
    return USERS_GROUP_GRACE_SECONDS - (snapshot.now - created).total_seconds()


def _manifest(job: PaddleJob, kind: Kind, spec: JsonObject) -> JsonObject:
    metadata = {
        "name": job.name,
        "namespace": job.metadata.namespace,
        "labels": {names.LABEL_JOB: job.name},
        "ownerReferences": [msgspec.to_builtins(job.owner_reference)],
    }
    resource = GANG_RESOURCES[kind]
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
