"""Builds evidence in one line: a job with its pods, and what is around it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from paddlejob.api.pod_group import PodGroup
from paddlejob.api.quantity import parse_all
from paddlejob.client.events import EventView
from paddlejob.client.explain import Explanation, explain, objects
from paddlejob.client.explain.demand import to_nanos
from paddlejob.client.explain.evidence import Evidence, GangEvidence
from paddlejob.core.gang.model import GangSystem
from simkube.build import JobBuilder, SnapshotBuilder, job, snapshot

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
    used = {node: to_nanos(parse_all(amounts)) for node, amounts in around.pop("used", {}).items()}
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


def workload(name: str, local: int, everywhere: int, *, owner: str = "") -> Any:
    """A Workload that waits in a queue of Kueue behind so many others, as Kueue's visibility API shows it."""
    owners = {"ownerReferences": [{"kind": "Job", "name": owner, "uid": "u"}]} if owner else {}
    positions = {"positionInLocalQueue": local, "positionInClusterQueue": everywhere}
    return {
        "metadata": {"name": name, "namespace": "default", **owners},
        "priority": 0,
        "localQueueName": "team-a",
        **positions,
    }


def gang(system: str, spec: Any, status: Any = None, *, pending: Any = (), **queues: Any) -> GangEvidence:
    """The object that a scheduler knows the job `demo` by, and its queue."""
    group = {"metadata": {"name": "demo"}, "spec": spec, "status": status or {}}
    kinds = {"volcano_queue": objects.VolcanoQueue, "local_queue": objects.LocalQueue}
    known = {name: msgspec.convert(each, kinds[name]) for name, each in queues.items()}
    waiting = msgspec.convert(pending, tuple[objects.PendingWorkload, ...])
    return GangEvidence(GangSystem(system), msgspec.convert(group, PodGroup), pending=waiting, **known)


def cpu(amount, **more):
    return {"resources": {"requests": {"cpu": amount, **more}}}


def mounts(name):
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def tainted(name, **taint):
    return node(name, spec={"taints": [{"effect": "NoSchedule", **taint}]})


def refused(message, built=None, **around):
    """A job whose first worker the API server does not accept."""
    text = f"cannot create Pod demo-worker-0: {message}; retrying"
    return seen(pending(built or job().worker(1), text, "CreateFailed"), **around)


def placed(status, *, events=(), built=None):
    """A job whose only worker is on a node and does not start."""
    return seen(snapshot(pending(built or job().worker(1))).pod("worker", 0, status, node="a"), events=events)


def unplaced(built, message="0/1 nodes are available: 1 Insufficient cpu.", **around):
    """A job whose pods are there, without nodes; the scheduler says the same of all of them."""
    return seen(snapshot(pending(built)).pods(unschedulable(message)), **around)


def aged(evidence, seconds=60):
    """Let the pods be there for a while."""
    created = evidence.now - timedelta(seconds=seconds)
    pods = [replace(pod, metadata=replace(pod.metadata, creation_timestamp=created)) for pod in evidence.pods]
    return replace(evidence, pods=tuple(pods))


@dataclass(frozen=True)
class Case:
    """What is seen, and what has to be said of it; all texts are regular expressions."""

    evidence: Evidence
    cause: str
    summary: str
    rank: str = "worker-0"
    details: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


def check(case: Case) -> None:
    """Explain what is seen in a case, and compare."""
    found: Explanation = explain(case.evidence)
    text = str(found)
    assert found.cause == case.cause, text
    assert re.search(case.summary, found.summary), text
    assert found.rank == case.rank, text
    for wanted in case.details:
        assert any(re.search(wanted, line) for line in found.findings[0].details), text
    if case.advice:
        told = [advice.text for advice in found.advice]
        assert len(told) == len(case.advice), text
        assert all(re.search(wanted, advice) for wanted, advice in zip(case.advice, told, strict=True)), text
