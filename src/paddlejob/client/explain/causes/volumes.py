"""Find claims that keep pods from starting: missing, not bound, or usable by one node or pod only."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from paddlejob.client.explain.changes import follow_up, patch, set_op, template_path
from paddlejob.client.explain.demand import Demand, demands
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.objects import Claim
from paddlejob.client.explain.result import Advice, Finding

ONE_POD, ONE_NODE = "ReadWriteOncePod", "ReadWriteOnce"
_WAITS_FOR_POD = "WaitForFirstConsumer"


def find(evidence: Evidence) -> Iterator[Finding]:
    """Find claims that keep pods from starting. Each claim is reported once."""
    if evidence.claims is None:
        return
    seen = set()
    for demand in demands(evidence):
        for name in demand.shape.claims:
            if name not in seen:
                seen.add(name)
                yield from _judge(evidence, demand, name, evidence.claims.get(name))


def _judge(evidence: Evidence, demand: Demand, name: str, claim: Claim | None) -> Iterator[Finding]:
    rank = _rank(evidence, demand)
    if claim is None:
        yield _missing(evidence, demand, name, rank)
    elif claim.metadata.deletion_timestamp is not None:
        text = f"claim {name}, which {rank} mounts, is being deleted"
        yield Finding("ClaimDeleted", text, rank, advice=(Advice(f"create the claim {name} again"),))
    elif claim.status.phase == "Lost":
        text = f"claim {name} has lost its volume {claim.spec.volume_name}"
        yield Finding("ClaimLost", text, rank, advice=(Advice("restore the volume, or use another claim"),))
    elif claim.status.phase == "Pending" and not _waits_for_pod(evidence, claim):
        yield _unbound(evidence, claim, rank)
    elif claim.status.phase == "Bound":
        yield from _conflict(evidence, demand, claim)


def _rank(evidence: Evidence, demand: Demand) -> str:
    """Return the first pod of a role that is not running."""
    waiting = (member.replica for member in evidence.unscheduled if member.replica.role is demand.role)
    missing = (replica for replica in evidence.missing if replica.role is demand.role)
    return str(next(waiting, None) or next(missing, None) or evidence.blocking or demand.role)


def _missing(evidence: Evidence, demand: Demand, name: str, rank: str) -> Finding:
    near = difflib.get_close_matches(name, sorted(evidence.claims or ()), n=1)
    advice = [Advice(f"create the claim {name} in namespace {evidence.job.metadata.namespace}")]
    index = _volume_index(demand, name)
    if near and index is not None:
        path = template_path(demand.role, "volumes", index, "persistentVolumeClaim", "claimName")
        change = patch(evidence.job, set_op(path, near[0]))
        advice.insert(0, Advice(f"use the claim {near[0]}, which exists", change, then=follow_up(evidence)))
    return Finding(
        "ClaimNotFound", f"{rank} mounts claim {name}, which does not exist", rank, advice=tuple(advice)
    )


def _volume_index(demand: Demand, claim: str) -> int | None:
    """Return the index of a claim in the template, None if an admission plugin added it."""
    for index, volume in enumerate(demand.template.get("volumes") or ()):
        source = volume.get("persistentVolumeClaim") if isinstance(volume, dict) else None
        if isinstance(source, dict) and source.get("claimName") == claim:
            return index
    return None


def _waits_for_pod(evidence: Evidence, claim: Claim) -> bool:
    """Return whether a claim is bound only after its pod has a node, so that it blocks nothing."""
    if any(event.reason == _WAITS_FOR_POD for event in evidence.events_of(claim.metadata.name)):
        return True
    found = (evidence.storage_classes or {}).get(claim.spec.storage_class_name or "")
    return found is not None and found.volume_binding_mode == _WAITS_FOR_POD


def _unbound(evidence: Evidence, claim: Claim, rank: str) -> Finding:
    name, wanted = claim.metadata.name, claim.spec.storage_class_name
    warning = next((event for event in evidence.events_of(name) if event.type == "Warning"), None)
    size, modes = claim.spec.resources.requests.get("storage", "?"), ", ".join(claim.spec.access_modes)
    details = [f"claim {name} asks for {size}, {modes}, storage class {wanted or '(none)'}"]
    details += [f"{warning.reason}: {warning.message}"] if warning else []
    why, advice = (
        "no volume fits it yet",
        f"create a PersistentVolume for it, or see kubectl describe pvc {name}",
    )
    classes = evidence.storage_classes
    if wanted and classes is not None and wanted not in classes:
        why = f"there is no StorageClass {wanted}"
        known = f", or recreate the claim with class {' or '.join(sorted(classes)[:3])}" if classes else ""
        advice = f"create a PersistentVolume with class {wanted}{known}"
    elif wanted is None:
        why = "it names no StorageClass and the cluster has no default one"
        advice = "create a PersistentVolume without a class, or recreate the claim with a storageClassName"
    elif warning is not None:
        why = f"{warning.reason}: {warning.message}"
        advice = f"see kubectl describe pvc {name}"
    return Finding(
        "ClaimNotBound",
        f"{rank} mounts claim {name}, which is not bound: {why}",
        rank,
        tuple(details),
        (Advice(advice),),
    )


def _conflict(evidence: Evidence, demand: Demand, claim: Claim) -> Iterator[Finding]:
    """Find a claim that more pods mount than its access mode allows."""
    name, modes = claim.metadata.name, claim.spec.access_modes
    users = sum(each.replicas for each in demands(evidence) if name in each.shape.claims)
    rank = _rank(evidence, demand)
    advice = (Advice(f"use a claim with ReadWriteMany instead of {name}, or a claim for each pod"),)
    if modes == (ONE_POD,) and users > 1 and (evidence.unscheduled or evidence.missing):
        text = f"claim {name} is ReadWriteOncePod, but {users} pods of the job mount it"
        yield Finding("ClaimInUse", text, rank, advice=advice)
        return
    attach_failures = (event for event in evidence.events if event.reason == "FailedAttachVolume")
    stuck = next((event for event in attach_failures if "Multi-Attach" in event.message), None)
    if stuck is not None and modes == (ONE_NODE,):
        text = f"claim {name} is ReadWriteOnce and in use on a node other than that of {rank}"
        yield Finding("ClaimInUse", text, rank, (stuck.message,), advice)
