"""Find pods that do not fit on the nodes: how many fit, the reasons for the others, and changes that help."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.quantity import ZERO
from paddlejob.client.explain.causes import scheduler
from paddlejob.client.explain.changes import (
    REQUESTS,
    fewer_replicas,
    follow_up,
    has_path,
    lower_resources,
    patch,
    remove_op,
    set_op,
    template_path,
)
from paddlejob.client.explain.cluster import (
    Barrier,
    BarrierKind,
    Cluster,
    FreeRoom,
    capacity,
    from_nanos,
    largest_request,
    pod_requests,
)
from paddlejob.client.explain.demand import PODS, Demand, demands
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.result import Advice, Change, Finding

MIN_TYPO_CPUS = 100
"""A pod that requests this many processors usually lacks the suffix `m`."""
NAMED_NODES = 3
TRIED_BARRIERS = 20
"""How many sets of barriers are tried, the smallest first."""
_AFFINITY = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


class Shortage(msgspec.Struct, frozen=True):
    """A role with waiting pods that do not all fit."""

    evidence: Evidence
    cluster: Cluster
    demand: Demand
    requests: dict[str, int]
    """Of one pod, in nanos."""
    free: FreeRoom
    """The room that the pods of the other roles leave free."""
    fitting: int
    """How many of the waiting pods fit."""

    @property
    def open_nodes(self) -> list[str]:
        """Names of the nodes without a barrier."""
        return self.cluster.open_nodes(self.demand)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Find pods that have no room, by counting it."""
    waiting = tuple(demand for demand in demands(evidence) if demand.waiting)
    if not waiting or evidence.nodes is None:
        return
    if not evidence.nodes:
        rank = str(evidence.blocking or "")
        yield Finding("NoNodes", "the cluster has no nodes", rank, advice=(Advice("add a node"),))
    elif shortage := _find_shortage(evidence, waiting):
        yield _finding(shortage)


def _find_shortage(evidence: Evidence, waiting: tuple[Demand, ...]) -> Shortage | None:
    """Place the waiting pods role by role, and return the first role that does not fit."""
    cluster = Cluster(evidence)
    free = cluster.free_room()
    for demand in waiting:
        before = {node: dict(amounts) for node, amounts in free.items()}
        fitting = cluster.place(free, demand, demand.waiting)
        if fitting < demand.waiting:
            return Shortage(evidence, cluster, demand, pod_requests(demand), before, fitting)
    return None


def _finding(shortage: Shortage) -> Finding:
    evidence, demand = shortage.evidence, shortage.demand
    verdict = next(scheduler.verdicts(evidence, demand), None)
    missing = (str(replica) for replica in evidence.missing if replica.role is demand.role)
    rank = verdict.rank if verdict else next(missing, str(evidence.blocking or ""))
    cause, summary = _headline(shortage)
    fits_alone = _fits_alone(shortage)
    details = tuple(_details(shortage, fits_alone=fits_alone))
    return Finding(cause, summary, rank, details, _advice(shortage, fits_alone=fits_alone))


def _headline(shortage: Shortage) -> tuple[str, str]:
    demand, open_nodes = shortage.demand, shortage.open_nodes
    if not open_nodes:
        pods = f"the {demand.role}" if demand.waiting == 1 else f"the {demand.count_pods(demand.waiting)}"
        return "NoMatchingNode", f"no node accepts {pods}: {'; '.join(_closed_nodes(shortage))}"
    for name, amount in shortage.requests.items():
        largest = max(shortage.cluster.sizes[node].get(name, 0) for node in open_nodes)
        if largest < amount:
            asked = demand.requests[name]
            offers = f"the largest has {from_nanos(largest, asked)}" if largest else "no node offers it"
            nodes = "that accepts it " if len(open_nodes) < len(shortage.cluster.sizes) else ""
            return "NodeTooSmall", f"no node {nodes}has {name} {asked} for a {demand.role}: {offers}"
    fit = demand.replicas - demand.waiting + shortage.fitting
    pods = demand.count_pods(demand.replicas)
    return "NotEnoughRoom", f"at most {fit} of {pods} fit now: {_shortage_text(shortage)}"


def _shortage_text(shortage: Shortage) -> str:
    scarce = _scarce_resources(shortage)
    if scarce == [PODS]:
        return "the nodes have reached their pod limit"
    if not scarce:
        return "no node has enough left of everything that they request"
    return f"the nodes have too little {' and '.join(scarce)}"


def _scarce_resources(shortage: Shortage) -> list[str]:
    """Return the resources that alone would keep some of the pods out."""
    return [
        name
        for name, amount in shortage.requests.items()
        if sum(capacity(shortage.free[node], {name: amount}) for node in shortage.open_nodes)
        < shortage.demand.waiting
    ]


def _closed_nodes(shortage: Shortage) -> Iterator[str]:
    """Yield how many nodes have each of the most common barriers."""
    counts = Counter(
        barrier for barriers in shortage.cluster.barriers(shortage.demand).values() for barrier in barriers
    )
    for barrier, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:NAMED_NODES]:
        yield f"{'1 node' if count == 1 else f'{count} nodes'} {_describe(barrier, count)}"


def _describe(barrier: Barrier, count: int) -> str:
    has, are = ("has", "is") if count == 1 else ("have", "are")
    return {
        BarrierKind.CORDON: f"{are} cordoned",
        BarrierKind.UNHEALTHY: f"{are} not healthy ({barrier.detail})",
        BarrierKind.TAINT: f"{has} the taint {barrier.detail}",
        BarrierKind.LABEL: f"{has} no label {barrier.detail}",
        BarrierKind.AFFINITY: f"{'does' if count == 1 else 'do'} not match its node affinity",
        BarrierKind.VOLUME: f"cannot reach the volume of claim {barrier.detail}",
    }[barrier.kind]


def _details(shortage: Shortage, *, fits_alone: bool) -> Iterator[str]:
    evidence, demand = shortage.evidence, shortage.demand
    requests = ", ".join(
        f"{name} {amount}" for name, amount in demand.requests.items() if amount.amount and name != PODS
    )
    yield f"each {demand.role} requests {requests or 'no resources'}"
    if (processors := demand.requests.get("cpu", ZERO).amount) >= MIN_TYPO_CPUS:
        meant = f"{processors}m would be {float(processors) / 1000:g}"
        yield f"cpu {processors} means {processors} processors; {meant}"
    yield from _largest_free_nodes(shortage)
    if 0 < len(shortage.open_nodes) < len(shortage.cluster.sizes):
        yield from _closed_nodes(shortage)
    if fits_alone:
        yield "all of them would fit if other pods did not use the nodes"
    if not evidence.sees_all_pods:
        yield "pods that could not be read are not counted; they may use more of the nodes"
    gang = evidence.gang.group.spec.scheduling_policy.gang if evidence.gang else None
    if gang and gang.min_count > 1:
        yield f"the scheduler starts {gang.min_count} pods of the job together or none"


def _largest_free_nodes(shortage: Shortage) -> Iterator[str]:
    """Yield the open nodes with most of the scarce resource free."""
    name = next(iter((*_scarce_resources(shortage), *shortage.requests)))
    like, free = shortage.demand.requests[name], shortage.cluster.free_room()
    for node in heapq.nlargest(NAMED_NODES, shortage.open_nodes, key=lambda node: free[node].get(name, 0)):
        left = from_nanos(max(0, free[node].get(name, 0)), like)
        size = from_nanos(shortage.cluster.sizes[node].get(name, 0), like)
        yield f"node {node} has {name} {left} of {size} free"


def _fits_alone(shortage: Shortage) -> bool:
    """Return whether the whole job would fit on empty nodes, so that only other pods are in the way."""
    cluster, free = shortage.cluster, shortage.cluster.empty_nodes()
    others = (each for each in demands(shortage.evidence) if each.role is not shortage.demand.role)
    return all(
        cluster.place(free, demand, demand.replicas) == demand.replicas
        for demand in (*others, shortage.demand)
    )


def _advice(shortage: Shortage, *, fits_alone: bool) -> tuple[Advice, ...]:
    """Return changes that would be enough; the change that keeps most of the job comes first."""
    evidence, demand = shortage.evidence, shortage.demand
    free = _room_for_role(shortage)
    sizes = (
        fewer_replicas(evidence, demand, demand.replicas - demand.waiting + shortage.fitting),
        _smaller_requests(shortage, free),
    )
    found = sorted((each for each in sizes if each), key=lambda each: -each.keeps)
    # Opening nodes comes last: most nodes are closed on purpose.
    found += [opened] if (opened := _open_nodes(shortage, free)) else []
    if fits_alone:
        return (*found[:2], Advice("wait until other pods free up room"))
    return tuple(found) or (Advice(f"add nodes that a {demand.role} fits on and may be scheduled to"),)


def _room_for_role(shortage: Shortage) -> FreeRoom:
    """Return the room that the other roles leave for all pods of this role, running ones included."""
    evidence, cluster = shortage.evidence, shortage.cluster
    free = cluster.free_room()
    for other in demands(evidence):
        if other.role is not shortage.demand.role:
            cluster.place(free, other, other.waiting)
    for member in evidence.pod_set.active:
        node = free.get(member.pod.spec.node_name)
        if node is not None and member.replica.role is shortage.demand.role:
            for name, amount in shortage.requests.items():
                node[name] = node.get(name, 0) + amount
    return free


def _smaller_requests(shortage: Shortage, free: FreeRoom) -> Advice | None:
    """Lower the one resource of which most can be kept; if one is not enough, name the scarce ones."""
    evidence, demand, requests = shortage.evidence, shortage.demand, shortage.requests
    nodes = [free[node] for node in shortage.open_nodes]
    found = []
    for name in requests:
        largest = 0 if name == PODS else largest_request(nodes, requests, name, demand.replicas)
        if 0 < largest < requests[name]:
            maximum = from_nanos(largest, demand.requests[name])
            found.append(lower_resources(evidence, demand, {(REQUESTS, name): maximum}))
    if any(found):
        return max((each for each in found if each), key=lambda each: each.keeps)
    scarce = [name for name in _scarce_resources(shortage) if name != PODS]
    if len(scarce) < 2:
        return None
    return Advice(f"lower the {' and '.join(scarce)} requests of each {demand.role}", keeps=0.0)


def _open_nodes(shortage: Shortage, free: FreeRoom) -> Advice | None:
    """Find the smallest set of barriers without which all pods of the role fit."""
    barriers, demand = shortage.cluster.barriers(shortage.demand), shortage.demand
    capacities = {node: capacity(free[node], shortage.requests) for node in barriers}
    closed = sorted(set(barriers.values()) - {frozenset()}, key=lambda each: (len(each), sorted(each)))
    for lifted in closed[:TRIED_BARRIERS]:
        room = sum(pods for node, pods in capacities.items() if barriers[node] <= lifted)
        if room >= demand.replicas and (advice := _lift_barriers(shortage, sorted(lifted))):
            return advice
    return None


def _lift_barriers(shortage: Shortage, barriers: list[Barrier]) -> Advice | None:
    """Advise how to lift all these barriers, None if a change of the template cannot lift one of them."""
    evidence, demand = shortage.evidence, shortage.demand
    if barriers == [Barrier(BarrierKind.CORDON)]:
        return _uncordon(evidence)
    taints = [barrier.detail for barrier in barriers if barrier.kind is BarrierKind.TAINT]
    others = [barrier for barrier in barriers if barrier.kind is not BarrierKind.TAINT]
    steps = [_tolerate(demand, taints)] if taints else []
    for barrier in others:
        step = _drop_rule(demand, barrier)
        if step is None:
            return None
        steps.append(step)
    labels = [barrier.detail for barrier in others if barrier.kind is BarrierKind.LABEL]
    also = f", or give nodes the label {' and '.join(labels)}" if labels else ""
    text = " and ".join(text for text, _ in steps)
    return Advice(f"{text}{also}", patch(evidence.job, *(op for _, op in steps)), then=follow_up(evidence))


def _tolerate(demand: Demand, taints: list[str]) -> tuple[str, JsonObject]:
    tolerations = [*(demand.template.get("tolerations") or ()), *map(_toleration, taints)]
    text = f"let the {demand.role} tolerate {' and '.join(taints)}"
    return text, set_op(template_path(demand.role, "tolerations"), tolerations)


def _toleration(taint: str) -> JsonObject:
    pair, _, effect = taint.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "operator": "Equal", "value": value, "effect": effect}


def _drop_rule(demand: Demand, barrier: Barrier) -> tuple[str, JsonObject] | None:
    """Remove a node label or the node affinity from the template, None if the template does not have it."""
    role, template = demand.role, demand.template
    label = barrier.detail.partition("=")[0]
    if barrier.kind is BarrierKind.LABEL and label in (template.get("nodeSelector") or {}):
        text = f"remove {label} from spec.{role}.template.spec.nodeSelector"
        return text, remove_op(template_path(role, "nodeSelector", label))
    if barrier.kind is BarrierKind.AFFINITY and has_path(template, _AFFINITY):
        text = f"remove the required nodeAffinity from spec.{role}.template.spec"
        return text, remove_op(template_path(role, *_AFFINITY))
    return None


def _uncordon(evidence: Evidence) -> Advice:
    nodes = [node.metadata.name for node in evidence.nodes or () if node.spec.unschedulable]
    ops = (set_op(("spec", "unschedulable"), value=False),)
    change = Change("node", nodes[0], ops) if len(nodes) == 1 else None
    return Advice(f"uncordon {', '.join(nodes[:NAMED_NODES])}, if nothing is wrong there", change)
