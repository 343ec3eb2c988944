"""Builds evidence in one line: a job with its pods, and what is around it."""

from __future__ import annotations

from typing import Any

import msgspec

from paddlejob.api.pod_group import PodGroup
from paddlejob.api.quantity import parse_all
from paddlejob.client.events import EventView
from paddlejob.client.explain import objects
from paddlejob.client.explain.demand import in_nanos
from paddlejob.client.explain.evidence import Evidence, Gang
from paddlejob.core.gang.model import GangSystem
from paddlejob.testing.build import JobBuilder, SnapshotBuilder, snapshot

KINDS = {
    "nodes": objects.Node,
    "quotas": objects.ResourceQuota,
    "limit_ranges": objects.LimitRange,
    "events": EventView,
}
NAMED = {
    "claims": objects.Claim,
    "volumes": objects.PersistentVolume,
    "storage_classes": objects.StorageClass,
}


def seen(of: JobBuilder | SnapshotBuilder, **around: Any) -> Evidence:
    """Return the evidence for a job; what is around it is given as plain JSON."""
    built = of if isinstance(of, SnapshotBuilder) else snapshot(of)
    given = built.build()
    for field, kind in KINDS.items():
        if around.get(field) is not None:
            around[field] = tuple(msgspec.convert(each, kind, strict=False) for each in around[field])
    for field, kind in NAMED.items():
        if around.get(field) is not None:
            found = (msgspec.convert(each, kind, strict=False) for each in around[field])
            around[field] = {each.metadata.name: each for each in found}
    used = {node: in_nanos(parse_all(amounts)) for node, amounts in around.pop("used", {}).items()}
    return Evidence(job=given.job, now=given.now, pods=given.pods, used=used, **around)


def pending(built: JobBuilder, message: str = "waiting", reason: str = "WaitingForPods") -> JobBuilder:
    """Give a job the status of one that waits."""
    return built.status(phase="Pending", reason=reason, message=message)


def node(name: str = "a", *, labels: dict[str, str] | None = None, spec: Any = None, **room: Any) -> Any:
    """A node with so much room; `memory` and `pods` are plenty unless given."""
    allocatable = {"cpu": 4, "memory": "64Gi", "pods": 110, **room}
    metadata = {"name": name, "labels": labels or {}}
    return {"metadata": metadata, "spec": spec or {}, "status": {"allocatable": allocatable}}


def quota(hard: dict[str, Any], used: dict[str, Any] | None = None, **spec: Any) -> Any:
    """A quota called team-a."""
    return {"metadata": {"name": "team-a"}, "spec": spec, "status": {"hard": hard, "used": used or {}}}


def claim(name: str, phase: str = "Bound", **spec: Any) -> Any:
    """A claim, by default bound."""
    given = {"accessModes": ["ReadWriteMany"], "storageClassName": "gold", **spec}
    return {"metadata": {"name": name}, "spec": given, "status": {"phase": phase}}


def event(name: str, reason: str, message: str, **fields: Any) -> Any:
    """A warning about an object."""
    about = {"name": name, "kind": "Pod"}
    told = {"type": "Warning", "reason": reason, "message": message, "involvedObject": about}
    return {"metadata": {"name": "event"}, **told, **fields}


def unschedulable(message: str) -> Any:
    """The status of a pod that the scheduler has no node for."""
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [told]}


def waiting(reason: str, message: str = "", **container: Any) -> Any:
    """The status of a pod on a node whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "paddle", "state": state, **container}]}


def gang(system: str, spec: Any, status: Any = None, **queues: Any) -> Gang:
    """The object that a scheduler knows the job `demo` by, and its queue."""
    group = {"metadata": {"name": "demo"}, "spec": spec, "status": status or {}}
    kinds = {"volcano_queue": objects.VolcanoQueue, "local_queue": objects.LocalQueue}
    known = {name: msgspec.convert(each, kinds[name]) for name, each in queues.items()}
    return Gang(GangSystem(system), msgspec.convert(group, PodGroup), **known)
