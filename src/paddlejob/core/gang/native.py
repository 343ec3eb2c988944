"""Kubernetes' own gangs: the scheduler holds pods back until enough of them exist and fit."""

from __future__ import annotations

from paddlejob.api.meta import JsonObject
from paddlejob.api.pod_group import PodGroup
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.actions import Action, Delete, Kind
from paddlejob.core.gang.model import Gang, GangSystem
from paddlejob.core.gang.pod_group import PodGroupAdapter, least_pods, unschedulable_reason
from paddlejob.core.gang.state import GangState
from paddlejob.core.pod_set import PodSet
from paddlejob.core.snapshot import Snapshot


class Native(PodGroupAdapter):
    """PodGroups of scheduling.k8s.io."""

    system = GangSystem.NATIVE
    creates_pods_first = True

    def desired(self, job: PaddleJob, pod_set: PodSet, kind: Kind) -> JsonObject:
        """Return the size and, for v1beta1, the priority.

        Kubernetes 1.36 accepts a priority only with a feature gate that clients cannot see. The pods have it.
        """
        policy, counts = job.spec.scheduling_policy, least_pods(job, pod_set)
        spec: JsonObject = {"schedulingPolicy": {"gang": {"minCount": max(sum(counts.values()), 1)}}}
        if kind is Kind.POD_GROUP_V1BETA1 and policy and policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
        return spec

    def changes(self, wanted: JsonObject, group: PodGroup) -> JsonObject:
        """Return the patch of the size; the priority cannot be changed."""
        policy, gang = wanted["schedulingPolicy"], group.spec.scheduling_policy.gang
        same = gang is not None and gang.min_count == policy["gang"]["minCount"]
        return {} if same else {"schedulingPolicy": policy}

    def adjust(
        self, snapshot: Snapshot, kind: Kind, group: PodGroup, changes: JsonObject
    ) -> tuple[Action, ...]:
        """Patch the PodGroup. The older version has a fixed size, and is replaced while there are no pods."""
        if kind is not Kind.POD_GROUP_V1ALPHA2:
            return super().adjust(snapshot, kind, group, changes)
        metadata = group.metadata
        return () if snapshot.pods else (Delete(kind, metadata.name, metadata.uid),)

    def is_outgrown(self, snapshot: Snapshot, pod_set: PodSet) -> bool:
        """Return whether the job's PodGroup has the version with a fixed size, and the wrong size."""
        kind = Kind.POD_GROUP_V1ALPHA2
        group = snapshot.pod_groups.get(kind)
        if group is None or group.metadata.controller_uid != snapshot.job.metadata.uid:
            return False
        return bool(self.changes(self.desired(snapshot.job, pod_set, kind), group))

    def gang(self, snapshot: Snapshot, pod_set: PodSet) -> Gang | None:
        """Return None once the gang was complete or a worker has succeeded: new pods are scheduled alone.

        As members they would wait for as many peers as the gang began with, which may be too many.
        """
        status = snapshot.job.status
        has_begun = status.attempt > status.base_attempt or pod_set.finished
        return None if has_begun else super().gang(snapshot, pod_set)

    def state(
        self,
        snapshot: Snapshot,  # noqa: ARG002
        group: PodGroup,
        gang: Gang | None,
        actions: tuple[Action, ...],
        *,
        has_pods: bool,  # noqa: ARG002
    ) -> GangState:
        """Admit the pods unless the PodGroup is being replaced."""
        name, reason = group.metadata.name, unschedulable_reason(group)
        is_replaced = any(isinstance(action, Delete) for action in actions)
        return GangState(
            gang,
            actions,
            admitted=not is_replaced,
            obstacle=f"recreating PodGroup {name}: minCount changed",
            remark=f"waiting for PodGroup {name}: {reason}" if reason else "",
        )

    def mark_pod(self, pod: JsonObject, gang: Gang, role: Role) -> None:  # noqa: ARG002
        pod["spec"]["schedulingGroup"] = {"podGroupName": gang.group}
