"""Volcano: pods are created when Volcano has taken their PodGroup from its queue."""

from __future__ import annotations

from collections.abc import Mapping

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod_group import PodGroup, Queue
from paddlejob.api.quantity import Quantity, parse_all
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.actions import Action, Kind
from paddlejob.core.gang.model import Gang, GangSystem
from paddlejob.core.gang.pod_group import PodGroupAdapter, least_pods, unschedulable_reason
from paddlejob.core.gang.requests import gang_requests
from paddlejob.core.gang.state import GangState
from paddlejob.core.pod_set import PodSet
from paddlejob.core.snapshot import Snapshot

DEFAULT_QUEUE = "default"
"""The queue of a PodGroup that names none."""
OPEN_PHASES = ("Inqueue", "Running")
"""PodGroup phases in which Volcano accepts pods. Older versions reject them in other phases."""

_UNSEEN = "no scheduler has looked at it yet; check that Volcano's scheduler runs"


class Volcano(PodGroupAdapter):
    """PodGroups of scheduling.volcano.sh."""

    system = GangSystem.VOLCANO
    creates_pods_first = False

    def desired(self, job: PaddleJob, pod_set: PodSet, kind: Kind) -> JsonObject:  # noqa: ARG002
        """Return size, resources, queue and priority."""
        policy, counts = job.spec.scheduling_policy, least_pods(job, pod_set)
        room = dict(policy.min_resources) if policy and policy.min_resources else _room(job, counts)
        return {
            "minMember": max(sum(counts.values()), 1),
            **({"minResources": room} if room else {}),
            **({"queue": policy.queue} if policy and policy.queue else {}),
            **({"priorityClassName": policy.priority_class} if policy and policy.priority_class else {}),
        }

    def changes(self, wanted: JsonObject, group: PodGroup) -> JsonObject:
        """Return the patch. A queue that the job does not name was set by an admission plugin and stays."""
        spec, changes = group.spec, JsonObject()
        if spec.min_member != wanted["minMember"]:
            changes["minMember"] = wanted["minMember"]
        if wanted.get("queue", spec.queue) != spec.queue:
            changes["queue"] = wanted["queue"]
        if wanted.get("priorityClassName", "") != spec.priority_class_name:
            changes["priorityClassName"] = wanted.get("priorityClassName")
        room = wanted.get("minResources", {})
        if parse_all(room) != _parse(spec.min_resources):
            changes["minResources"] = {**dict.fromkeys(spec.min_resources), **room} if room else None
        return changes

    def state(
        self,
        snapshot: Snapshot,
        group: PodGroup,
        gang: Gang | None,
        actions: tuple[Action, ...],
        *,
        has_pods: bool,
    ) -> GangState:
        """Admit the pods when the PodGroup has left its queue."""
        phase, reason = group.status.phase, unschedulable_reason(group)
        is_queued = phase in OPEN_PHASES
        stuck = "" if is_queued else queue_obstacle(group, snapshot.queues)
        words = ": ".join(word for word in (phase, reason, stuck) if word) or _UNSEEN
        says = f"waiting for {_described(snapshot, group)}: {words}"
        remark = says if reason or not is_queued else ""
        return GangState(gang, actions, admitted=has_pods or is_queued, obstacle=says, remark=remark)

    def mark_pod(self, pod: JsonObject, gang: Gang, role: Role) -> None:
        pod["spec"]["schedulerName"] = names.VOLCANO
        pod["metadata"]["annotations"] |= {
            names.ANNOTATION_GROUP_NAME: gang.group,
            names.ANNOTATION_TASK: str(role),
            names.ANNOTATION_VOLCANO_JOB: gang.group,
            names.ANNOTATION_VOLCANO_JOB_VERSION: "0",
            names.ANNOTATION_QUEUE: gang.queue,
        }


def queue_obstacle(group: PodGroup, queues: Mapping[str, Queue] | None) -> str:
    """Return why a PodGroup can never leave its queue, and a remedy; empty if it can.

    Volcano gives no reason in such a PodGroup. This checks whether the queue exists, is open, and is large
    enough for the group. Only the scheduler knows how much of the queue or the cluster is free; it records
    that as events of the PodGroup.
    """
    if queues is None:
        return ""
    name = group.spec.queue or DEFAULT_QUEUE
    queue, other = queues.get(name), "set spec.schedulingPolicy.queue to another"
    if queue is None:
        return f"queue {name} does not exist; create it or {other}"
    if queue.status.state not in ("", "Open"):
        return f"queue {name} is {queue.status.state}; open it or {other}"
    needs, allows = _parse(group.spec.min_resources), _parse(queue.spec.capability)
    for resource in sorted((needs or {}).keys() & (allows or {}).keys()):
        need, allowed = (needs or {})[resource], (allows or {})[resource]
        if need.amount > allowed.amount:
            return (
                f"the job needs {resource} {need}, but the capability of queue {name} is {allowed}; "
                f"raise the queue's capability, lower the job's requests or replicas, or {other}"
            )
    return ""


def _described(snapshot: Snapshot, group: PodGroup) -> str:
    """Name a PodGroup, and its size if the job cannot reach it."""
    pods = sum(spec.replicas for _, spec in snapshot.job.spec.roles()) + snapshot.spares
    if group.spec.min_member > pods:
        too_large = f"whose minMember {group.spec.min_member} exceeds the job's {pods} pods"
        return f"PodGroup {group.metadata.name}, {too_large}"
    return f"PodGroup {group.metadata.name}"


def _parse(amounts: Mapping[str, int | str]) -> dict[str, Quantity] | None:
    """Parse amounts from an object that users can edit; None if they are invalid."""
    try:
        return parse_all(amounts)
    except ValueError:
        return None


def _room(job: PaddleJob, counts: dict[Role, int]) -> JsonObject:
    templates = ((role, spec.template.get("spec") or {}) for role, spec in job.spec.roles())
    return dict(gang_requests((template, counts[role]) for role, template in templates))
