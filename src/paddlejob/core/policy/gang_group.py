"""The PodGroup itself: its size and room, what it differs in, and what its scheduler says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod_group import PodGroup, Queue
from paddlejob.api.quantity import Quantity, parse_all
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.actions import Kind
from paddlejob.core.attempts.elastic import worker_range
from paddlejob.core.policy.gang_resources import gang_requests

API_VERSIONS = {
    Kind.POD_GROUP: "scheduling.volcano.sh/v1beta1",
    Kind.POD_GROUP_V1ALPHA2: "scheduling.k8s.io/v1alpha2",
    Kind.POD_GROUP_V1BETA1: "scheduling.k8s.io/v1beta1",
}
DEFAULT_QUEUE = "default"
"""Where Volcano puts a PodGroup that names no queue."""
_BAD_NEWS = {"Unschedulable": "True", "PodGroupScheduled": "False", "PodGroupInitiallyScheduled": "False"}
_GOOD_NEWS = "Scheduled"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def least_pods(job: PaddleJob) -> dict[Role, int]:
    """Return how many pods of each role must find a place together.

    All of them; of an elastic job's workers the fewest that it trains with. `minAvailable` counts pods in the
    order of their creation.
    """
    spec, policy = job.spec, job.spec.scheduling_policy
    counts = {role: role_spec.replicas for role, role_spec in spec.roles()}
    if policy is not None and policy.min_available:
        left = policy.min_available
        for role, count in counts.items():
            counts[role] = min(count, left)
            left -= counts[role]
        return counts
    bounds = worker_range(spec)
    if bounds is not None:
        counts[Role.WORKER] = min(bounds.least, counts[Role.WORKER])
    return counts


def desired_spec(job: PaddleJob, kind: Kind) -> JsonObject:
    """Return the spec of the operator's own PodGroup."""
    policy, counts = job.spec.scheduling_policy, least_pods(job)
    priority = {"priorityClassName": policy.priority_class} if policy and policy.priority_class else {}
    size = sum(counts.values())
    if kind is not Kind.POD_GROUP:
        spec: JsonObject = {"schedulingPolicy": {"gang": {"minCount": size}}}
        # Kubernetes 1.36 takes a priority only with a gate that nobody sees from outside; the pods have it.
        return {**spec, **priority} if kind is Kind.POD_GROUP_V1BETA1 else spec
    room = dict(policy.min_resources) if policy and policy.min_resources else _room(job, counts)
    queue = {"queue": policy.queue} if policy and policy.queue else {}
    return {"minMember": size, **({"minResources": room} if room else {}), **queue, **priority}


def group_manifest(job: PaddleJob, kind: Kind, spec: JsonObject) -> JsonObject:
    """Return the PodGroup as it is sent to the API server."""
    metadata = {
        "name": job.name,
        "namespace": job.metadata.namespace,
        "labels": {names.LABEL_JOB: job.name},
        "ownerReferences": [msgspec.to_builtins(job.owner_reference)],
    }
    return {"apiVersion": API_VERSIONS[kind], "kind": "PodGroup", "metadata": metadata, "spec": spec}


def changes_of(wanted: JsonObject, group: PodGroup, kind: Kind) -> JsonObject:
    """Return the merge patch from a PodGroup's spec to the one that is wanted, empty when there is nothing.

    The queue is left as it is when the job names none: an admission plugin has chosen it. Kubernetes' own
    PodGroups never change their priority.
    """
    spec = group.spec
    if kind is not Kind.POD_GROUP:
        policy = wanted["schedulingPolicy"]
        gang = spec.scheduling_policy.gang
        same = gang is not None and gang.min_count == policy["gang"]["minCount"]
        return {} if same else {"schedulingPolicy": policy}
    changes: JsonObject = {}
    if spec.min_member != wanted["minMember"]:
        changes["minMember"] = wanted["minMember"]
    if wanted.get("queue", spec.queue) != spec.queue:
        changes["queue"] = wanted["queue"]
    if wanted.get("priorityClassName", "") != spec.priority_class_name:
        changes["priorityClassName"] = wanted.get("priorityClassName")
    room = wanted.get("minResources", {})
    if parse_all(room) != _readable(spec.min_resources):
        changes["minResources"] = {**dict.fromkeys(spec.min_resources), **room} if room else None
    return changes


def unschedulable_reason(group: PodGroup) -> str:
    """Return what keeps a scheduler from placing a gang, in its own words, empty when nothing does.

    The latest word counts: Volcano never takes back that a gang did not fit, it adds that it does now.
    """
    words = [condition for condition in group.status.conditions if condition.type in (*_BAD_NEWS, _GOOD_NEWS)]
    latest = max(words, key=lambda condition: condition.last_transition_time or _LONG_AGO, default=None)
    if latest is None or _BAD_NEWS.get(latest.type) != latest.status:
        return ""
    return f"{latest.reason}: {' '.join(latest.message.split())}".strip(": ")


def queue_obstacle(group: PodGroup, queues: Mapping[str, Queue] | None) -> str:
    """Return why a PodGroup can never leave its queue as things are, and the way out; empty if it may.

    Volcano puts no reason into a PodGroup that it does not queue. What is known here is whether the queue
    exists, is open, and allows for as much as the group needs. How much of the queue or the cluster is free
    is known to the scheduler alone, which records it as events of the PodGroup.
    """
    if queues is None:
        return ""
    name = group.spec.queue or DEFAULT_QUEUE
    queue, other = queues.get(name), "set spec.schedulingPolicy.queue to another"
    if queue is None:
        return f"queue {name} does not exist; create it or {other}"
    if queue.status.state not in ("", "Open"):
        return f"queue {name} is {queue.status.state}; open it or {other}"
    needs, allows = _readable(group.spec.min_resources), _readable(queue.spec.capability)
    for resource in sorted((needs or {}).keys() & (allows or {}).keys()):
        need, allowed = (needs or {})[resource], (allows or {})[resource]
        if need.amount > allowed.amount:
            return (
                f"the job needs {resource} {need}, but the capability of queue {name} is {allowed}; "
                f"raise the queue's capability, lower the job's requests or replicas, or {other}"
            )
    return ""


def _readable(amounts: Mapping[str, int | str]) -> dict[str, Quantity] | None:
    """Return amounts that anybody may have written into an object, None when they mean nothing."""
    try:
        return parse_all(amounts)
    except ValueError:
        return None


def _room(job: PaddleJob, counts: dict[Role, int]) -> JsonObject:
    templates = ((role, spec.template.get("spec") or {}) for role, spec in job.spec.roles())
    return dict(gang_requests((template, counts[role]) for role, template in templates))
