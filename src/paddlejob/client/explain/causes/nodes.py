"""Nodes: how many of a job's pods have room now, and what keeps the others out."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping

from paddlejob.api.quantity import ZERO
from paddlejob.client.explain import cluster
from paddlejob.client.explain.causes import scheduler
from paddlejob.client.explain.causes.node_changes import NAMED_NODES, Short, advice
from paddlejob.client.explain.cluster import Barrier, Cluster, Kind, Spots
from paddlejob.client.explain.demand import PODS, Demand, demands
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.result import Advice, Finding

TYPO_CPUS = 100
"""Whoever asks for so many processors in one pod has mostly forgotten an m."""


def find(evidence: Evidence) -> Iterator[Finding]:
    """Find that pods have no room, by counting it."""
    asked = tuple(demand for demand in demands(evidence) if demand.waiting)
    if not asked or evidence.nodes is None:
        return
    if not evidence.nodes:
        rank = str(evidence.blocking or "")
        yield Finding("NoNodes", "the cluster has no nodes", rank, advice=(Advice("add a node"),))
    elif short := _short(evidence, asked):
        yield _finding(evidence, short)


def _short(evidence: Evidence, asked: tuple[Demand, ...]) -> Short | None:
    """Place all pods that wait, role by role; return the first role that does not fit."""
    nodes = Cluster(evidence)
    rooms = nodes.rooms()
    for demand in asked:
        needs, now = cluster.needs_of(demand), nodes.spots(demand, rooms.values())
        placed = cluster.take(nodes.open_to(demand, rooms.values()), needs, demand.waiting)
        if placed < demand.waiting:
            return Short(nodes, demand, needs, placed, now, _if_recreated(evidence, nodes, demand))
    return None


def _if_recreated(evidence: Evidence, nodes: Cluster, demand: Demand) -> Counter[Spots]:
    """Return the nodes as they would be if all of the job's pods were created again, this role's last."""
    rooms = nodes.rooms()
    every = {each.role: each for each in demands(evidence)}
    for member in evidence.pod_set.active:
        room, its = rooms.get(member.pod.spec.node_name), every.get(member.replica.role)
        if room and its:
            cluster.give_back(room, cluster.needs_of(its))
    for other in every.values():
        if other.role is not demand.role:
            cluster.spread(nodes.open_to(other, rooms.values()), cluster.needs_of(other), other.replicas)
    return nodes.spots(demand, rooms.values())


def _finding(evidence: Evidence, short: Short) -> Finding:
    demand = short.demand
    verdict = next(scheduler.verdicts(evidence, demand), None)
    missing = (str(replica) for replica in evidence.missing if replica.role is demand.role)
    rank = verdict.rank if verdict else next(missing, str(evidence.blocking or ""))
    cause, summary = _headline(short)
    fits_alone = _would_fit_alone(evidence, short)
    details = tuple(_details(evidence, short, fits_alone=fits_alone))
    return Finding(cause, summary, rank, details, advice(evidence, short, fits_alone=fits_alone))


def _headline(short: Short) -> tuple[str, str]:
    demand = short.demand
    sizes = [room.free for room in short.nodes.open_to(demand, short.nodes.rooms(empty=True).values())]
    if not sizes:
        closed = "; ".join(_closed(short.now))
        return "NoMatchingNode", f"no node accepts {_some(demand)}: {closed}"
    for name, amount in short.needs.amounts.items():
        most = max(size.get(name, 0) for size in sizes)
        if most < amount:
            asked = demand.requests[name]
            offers = f"the largest has {cluster.from_nanos(most, asked)}" if most else "no node offers it"
            nodes = "that accepts it " if any(spot.barriers for spot in short.now) else ""
            return "NodeTooSmall", f"no node {nodes}has {name} {asked} for a {demand.role}: {offers}"
    fit = demand.replicas - demand.waiting + short.placed
    return "NotEnoughRoom", f"at most {fit} of {demand.counted(demand.replicas)} fit now: {_shortage(short)}"


def _shortage(short: Short) -> str:
    lacking = list(_lacking(short))
    if lacking == [PODS]:
        return "the nodes have reached their pod limit"
    if not lacking:
        return "no node has enough left of everything that they request"
    return f"the nodes have too little {' and '.join(lacking)}"


def _some(demand: Demand) -> str:
    return f"the {demand.role}" if demand.waiting == 1 else f"the {demand.counted(demand.waiting)}"


def _lacking(short: Short) -> Iterator[str]:
    """Yield the resources that alone would keep some of the pods out."""
    for position, (name, amount) in enumerate(short.needs.amounts.items()):
        room = sum(
            max(0, spot.free[position]) // amount * count
            for spot, count in short.now.items()
            if not spot.barriers
        )
        if room < short.demand.waiting:
            yield name


def _closed(now: Mapping[Spots, int]) -> Iterator[str]:
    """Say how many nodes are closed, and by what."""
    tally: Counter[Barrier] = Counter()
    for spot, count in now.items():
        for barrier in spot.barriers:
            tally[barrier] += count
    for barrier, count in sorted(tally.items(), key=lambda entry: (-entry[1], entry[0]))[:NAMED_NODES]:
        yield f"{'1 node' if count == 1 else f'{count} nodes'} {_words(barrier, count)}"


def _words(barrier: Barrier, count: int) -> str:
    has, are = ("has", "is") if count == 1 else ("have", "are")
    return {
        Kind.CORDON: f"{are} cordoned",
        Kind.SICK: f"{are} not healthy ({barrier.what})",
        Kind.TAINT: f"{has} the taint {barrier.what}",
        Kind.LABEL: f"{has} no label {barrier.what}",
        Kind.AFFINITY: f"{'does' if count == 1 else 'do'} not match its node affinity",
        Kind.VOLUME: f"cannot reach the volume of claim {barrier.what}",
    }[barrier.kind]


def _details(evidence: Evidence, short: Short, *, fits_alone: bool) -> Iterator[str]:
    demand = short.demand
    asks = ", ".join(
        f"{name} {amount}" for name, amount in demand.requests.items() if amount.amount and name != PODS
    )
    yield f"each {demand.role} requests {asks or 'no resources'}"
    if (processors := demand.requests.get("cpu", ZERO).amount) >= TYPO_CPUS:
        meant = f"{processors}m would be {float(processors) / 1000:g}"
        yield f"cpu {processors} means {processors} processors; {meant}"
    yield from _roomiest(short)
    if any(spot.barriers for spot in short.now) and not all(spot.barriers for spot in short.now):
        yield from _closed(short.now)
    if fits_alone:
        yield "all of them would fit if other pods did not use the nodes"
    if not evidence.sees_all_pods:
        yield "pods that could not be read are not counted; they may use more of the nodes"
    gang = evidence.gang.group.spec.scheduling_policy.gang if evidence.gang else None
    if gang and gang.min_count > 1:
        yield f"the scheduler starts {gang.min_count} pods of the job together or none"


def _roomiest(short: Short) -> Iterator[str]:
    """Name the open nodes that have most of what is lacking."""
    name = next(_lacking(short), next(iter(short.needs.amounts)))
    like, sizes = short.demand.requests[name], short.nodes.rooms(empty=True)
    rooms = short.nodes.open_to(short.demand, short.nodes.rooms().values())
    for room in heapq.nlargest(NAMED_NODES, rooms, key=lambda room: room.free.get(name, 0)):
        free = cluster.from_nanos(max(0, room.free.get(name, 0)), like)
        size = cluster.from_nanos(sizes[room.node].free.get(name, 0), like)
        yield f"node {room.node} has {name} {free} of {size} free"


def _would_fit_alone(evidence: Evidence, short: Short) -> bool:
    """Tell whether the nodes are large enough, so that only pods of others are in the way."""
    rooms = short.nodes.rooms(empty=True)
    others = (each for each in demands(evidence) if each.role is not short.demand.role)
    for demand in (*others, short.demand):
        open_to = short.nodes.open_to(demand, rooms.values())
        if cluster.take(open_to, cluster.needs_of(demand), demand.replicas) < demand.replicas:
            return False
    return True
