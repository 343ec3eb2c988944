"""Find gangs that wait in a queue of Volcano or Kueue. Kubernetes' own gangs wait for nodes instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from paddlejob.api.names import Reason
from paddlejob.api.quantity import ZERO
from paddlejob.client.explain.changes import REQUESTS, fewer_replicas, lower_resources, round_down
from paddlejob.client.explain.demand import demands, parse_amounts
from paddlejob.client.explain.evidence import Evidence, GangEvidence
from paddlejob.client.explain.objects import LocalQueue
from paddlejob.client.explain.result import Advice, Finding
from paddlejob.core.gang.model import GangSystem
from paddlejob.core.gang.volcano import DEFAULT_QUEUE, OPEN_PHASES

NAMED_AHEAD = 3
"""How many of the jobs ahead in the queue are named."""

_MORE = re.compile(r"pod set (\S+): insufficient unused quota for (\S+) in flavor \S+?, (\S+) more needed")
_CAPACITY = re.compile(
    r"insufficient quota for (\S+) in flavor [^;]*?> maximum capacity \((?:\S+ > )?([^)]+)\)"
)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Find a gang that is not admitted. The operator's message is the summary."""
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
    needs = parse_amounts(group.spec.min_resources)
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
    capability, allocated = parse_amounts(queue.spec.capability), parse_amounts(queue.status.allocated)
    short: dict[str, Fraction] = {}
    for resource in sorted(needs.keys() & capability.keys()):
        used, most = allocated.get(resource, ZERO), capability[resource]
        details.append(f"queue {name}: {resource} {used} of {most} in use, the gang needs {needs[resource]}")
        if needs[resource].amount > most.amount - used.amount:
            short[resource] = most.amount - used.amount
    return details, _fit_into(evidence, short)


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
    return details, _fit_into(evidence, _kueue_room(evidence), never=never)


def _position(gang: GangEvidence, queue: LocalQueue) -> Iterator[str]:
    """Yield the job's position in its queues, if Kueue serves it."""
    here, everywhere = f"LocalQueue {queue.metadata.name}", f"ClusterQueue {queue.spec.cluster_queue}"
    name = gang.group.metadata.name
    for place, mine in enumerate(gang.pending):
        if mine.metadata.name != name:
            continue
        ahead = [each.owner for each in gang.pending[:place]]
        more = f" and {len(ahead) - NAMED_AHEAD} more" if len(ahead) > NAMED_AHEAD else ""
        named = f" ({', '.join(ahead[:NAMED_AHEAD])}{more})" if ahead else ""
        yield f"{_behind(mine.position_in_local_queue, here)}{named}"
        yield _behind(mine.position_in_cluster_queue, everywhere)


def _behind(others: int, queue: str) -> str:
    return f"behind {others} in {queue}" if others else f"next in {queue}"


def _kueue_room(evidence: Evidence) -> dict[str, Fraction]:
    """Parse from Kueue's message how much the whole job may request, in the flavor with most room."""
    left: dict[str, Fraction] = {}
    message = evidence.job.status.message
    for role, resource, more in _MORE.findall(message):
        lacking = parse_amounts({resource: more}).get(resource)
        if lacking is not None:
            room = _requested(evidence, resource, up_to=role) - lacking.amount
            left[resource] = max(left.get(resource, room), room)
    for resource, capacity in _CAPACITY.findall(message):
        if (most := parse_amounts({resource: capacity}).get(resource)) is not None:
            left[resource] = max(left.get(resource, most.amount), most.amount)
    return left


def _requested(evidence: Evidence, resource: str, *, up_to: str = "") -> Fraction:
    """Return the requests of all roles, or of those up to the role at which Kueue stopped."""
    total = Fraction(0)
    for each in demands(evidence):
        total += each.requests.get(resource, ZERO).amount * each.replicas
        if each.role == up_to:
            break
    return total


def _fit_into(evidence: Evidence, left: dict[str, Fraction], *, never: bool = False) -> list[Advice]:
    """Return changes with which the job requests at most `left`; `never` if waiting cannot help."""
    demand = max(demands(evidence), key=lambda each: each.replicas, default=None)
    if not left or demand is None:
        return []
    requests = {resource: demand.requests.get(resource, ZERO).amount for resource in left}
    room = {
        resource: max(Fraction(0), amount - _requested(evidence, resource) + own * demand.replicas)
        for (resource, amount), own in zip(left.items(), requests.values(), strict=True)
    }
    changes = []
    if all(requests.values()):
        count = min(room[resource] // amount for resource, amount in requests.items())
        changes.append(fewer_replicas(evidence, demand, count))
    maximum = {
        (REQUESTS, resource): round_down(resource, amount / demand.replicas)
        for resource, amount in room.items()
    }
    if all(amount.amount for amount in maximum.values()):
        changes.append(lower_resources(evidence, demand, maximum))
    found = sorted((each for each in changes if each), key=lambda each: -each.keeps)
    wait = "ask for a larger queue" if never else "wait until other jobs have left the queue"
    return [*found, Advice(wait)]
