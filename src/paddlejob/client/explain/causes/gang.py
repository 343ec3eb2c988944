"""Gangs and queues: what Volcano or Kueue waits for; what Kubernetes' own gangs wait for is room on nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from paddlejob.api.names import Reason
from paddlejob.api.quantity import ZERO, Quantity
from paddlejob.client.explain.changes import REQUESTS, fewer_replicas, rounded, smaller_pods
from paddlejob.client.explain.demand import Demand, demands, readable
from paddlejob.client.explain.evidence import Evidence, GangEvidence
from paddlejob.client.explain.objects import LocalQueue
from paddlejob.client.explain.result import Advice, Finding
from paddlejob.core.gang.model import GangSystem
from paddlejob.core.gang.volcano import DEFAULT_QUEUE, OPEN_PHASES

NAMED_BEFORE = 3
"""How many of the jobs ahead in the queue are named."""

_MORE = re.compile(r"pod set (\S+): insufficient unused quota for (\S+) in flavor \S+?, (\S+) more needed")
_CAPACITY = re.compile(
    r"insufficient quota for (\S+) in flavor [^;]*?> maximum capacity \((?:\S+ > )?([^)]+)\)"
)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Find that a gang is not let in: the operator says so, and why as far as it knows."""
    status, gang = evidence.job.status, evidence.gang
    if status.reason != Reason.WAITING_FOR_GANG or (gang and gang.system is GangSystem.NATIVE):
        return
    rank, details, advice = str(evidence.blocking or ""), list[str](), list[Advice]()
    if gang is not None and gang.system is GangSystem.VOLCANO:
        details, advice = _volcano(evidence, gang)
    elif gang is not None:
        details, advice = _kueue(evidence, gang)
    yield Finding("WaitingForGang", status.message, rank, tuple(details), tuple(advice))


def _volcano(evidence: Evidence, gang: GangEvidence) -> tuple[list[str], list[Advice]]:
    group, queue = gang.group, gang.volcano_queue
    name = group.spec.queue or DEFAULT_QUEUE
    needs = readable(group.spec.min_resources)
    shown = ", ".join(f"{resource} {amount}" for resource, amount in sorted(needs.items()))
    details = [
        f"PodGroup {group.metadata.name}: minMember {group.spec.min_member}, minResources {shown or 'none'}"
    ]
    if group.status.phase in OPEN_PHASES:
        details.append(f"the gang has left queue {name}; its pods wait for nodes")
    warnings = [
        event for event in evidence.events_of(group.metadata.name) if event.involved_object.kind == "PodGroup"
    ]
    details += [f"{event.reason}: {event.message}" for event in warnings[:1]]
    if queue is None:
        return details, []
    capability, allocated = readable(queue.spec.capability), readable(queue.status.allocated)
    short: dict[str, Fraction] = {}
    for resource in sorted(needs.keys() & capability.keys()):
        used, most = allocated.get(resource, ZERO), capability[resource]
        details.append(f"queue {name}: {resource} {used} of {most} in use, the gang needs {needs[resource]}")
        if needs[resource].amount > most.amount - used.amount:
            short[resource] = most.amount - used.amount
    return details, _within(evidence, short)


def _kueue(evidence: Evidence, gang: GangEvidence) -> tuple[list[str], list[Advice]]:
    group, queue = gang.group, gang.local_queue
    if queue is None:
        seen = not any("LocalQueue" in line for line in evidence.unseen)
        name = group.spec.queue_name
        advice = Advice(f"create LocalQueue {name}, or change the job's label to a queue that exists")
        return ([f"LocalQueue {name} does not exist"], [advice]) if seen else ([], [])
    status = queue.status
    counts = f"{status.pending_workloads} pending, {status.admitted_workloads} admitted"
    details = [f"LocalQueue {queue.metadata.name} of ClusterQueue {queue.spec.cluster_queue}: {counts}"]
    details += _position(gang, queue)
    details += [
        f"LocalQueue {queue.metadata.name}: {each.reason}: {each.message}"
        for each in status.conditions
        if each.type == "Active" and each.status == "False"
    ]
    never = _CAPACITY.search(evidence.job.status.message) is not None
    return details, _within(evidence, _left_by_kueue(evidence), never=never)


def _position(gang: GangEvidence, queue: LocalQueue) -> Iterator[str]:
    """Say who waits before the job, where Kueue tells."""
    here, everywhere = f"LocalQueue {queue.metadata.name}", f"ClusterQueue {queue.spec.cluster_queue}"
    name = gang.group.metadata.name
    for place, mine in enumerate(gang.pending):
        if mine.metadata.name != name:
            continue
        before = [each.owner for each in gang.pending[:place]]
        more = f" and {len(before) - NAMED_BEFORE} more" if len(before) > NAMED_BEFORE else ""
        named = f" ({', '.join(before[:NAMED_BEFORE])}{more})" if before else ""
        yield f"{_behind(mine.position_in_local_queue, here)}{named}"
        yield _behind(mine.position_in_cluster_queue, everywhere)


def _behind(others: int, queue: str) -> str:
    return f"behind {others} in {queue}" if others else f"next in {queue}"


def _left_by_kueue(evidence: Evidence) -> dict[str, Fraction]:
    """Read from Kueue's words how much of a resource the whole job may ask for, by its roomiest flavor."""
    left: dict[str, Fraction] = {}
    message = evidence.job.status.message
    for role, resource, more in _MORE.findall(message):
        lacking = readable({resource: more}).get(resource)
        if lacking is not None:
            room = _asked(evidence, resource, up_to=role) - lacking.amount
            left[resource] = max(left.get(resource, room), room)
    for resource, capacity in _CAPACITY.findall(message):
        if (most := readable({resource: capacity}).get(resource)) is not None:
            left[resource] = max(left.get(resource, most.amount), most.amount)
    return left


def _asked(evidence: Evidence, resource: str, *, up_to: str = "") -> Fraction:
    """Return what all roles ask for, or those that Kueue has looked at by the time that one does not fit."""
    asked = Fraction(0)
    for each in demands(evidence):
        asked += each.requests.get(resource, ZERO).amount * each.replicas
        if each.role == up_to:
            break
    return asked


def _within(evidence: Evidence, left: dict[str, Fraction], *, never: bool = False) -> list[Advice]:
    """Return changes with which the whole job asks for no more than is left, or `never` will be."""
    asked = demands(evidence)
    largest = max(asked, key=lambda each: each.replicas, default=None)
    if not left or largest is None:
        return []
    changes = (_fewer(evidence, largest, left), _smaller(evidence, largest, left))
    found = sorted((each for each in changes if each), key=lambda each: -each.keeps)
    wait = "ask for a larger queue" if never else "wait until other jobs have left the queue"
    return [*found, Advice(wait)]


def _room(evidence: Evidence, demand: Demand, resource: str, left: Fraction) -> Fraction:
    others = _asked(evidence, resource) - demand.requests.get(resource, ZERO).amount * demand.replicas
    return max(Fraction(0), left - others)


def _fewer(evidence: Evidence, demand: Demand, left: dict[str, Fraction]) -> Advice | None:
    counts = [
        _room(evidence, demand, resource, room) // each.amount
        for resource, room in left.items()
        if (each := demand.requests.get(resource, ZERO)).amount
    ]
    return fewer_replicas(evidence, demand, min(counts)) if len(counts) == len(left) else None


def _smaller(evidence: Evidence, demand: Demand, left: dict[str, Fraction]) -> Advice | None:
    most: dict[tuple[str, str], Quantity] = {
        (REQUESTS, resource): rounded(resource, _room(evidence, demand, resource, room) / demand.replicas)
        for resource, room in left.items()
    }
    return smaller_pods(evidence, demand, most) if all(each.amount for each in most.values()) else None
