"""What would let all pods of a role onto nodes: fewer pods, smaller pods, nodes that are opened to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.quantity import Quantity
from paddlejob.client.explain import cluster
from paddlejob.client.explain.changes import (
    NATIVE,
    REQUESTS,
    fewer_replicas,
    patch,
    recreate,
    remove_op,
    set_op,
    smaller_pods,
    template_path,
)
from paddlejob.client.explain.cluster import Barrier, Cluster, Kind, Needs, Spots
from paddlejob.client.explain.demand import PODS, Demand
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.result import Advice, Change

NAMED_NODES = 3
TRIED_SETS = 20
"""How many combinations of barriers are tried, the smallest first."""
_STEPS = 64
"""In so many steps several resources are lowered together."""
_UNITS = {"cpu": 10**7}
_MEBI, _ONE = 2**20 * 10**9, 10**9
_AFFINITY = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")

Most = dict[tuple[str, str], Quantity]


class Short(msgspec.Struct, frozen=True):
    """A role whose pods do not all have room."""

    nodes: Cluster
    demand: Demand
    needs: Needs
    placed: int
    """How many of the waiting pods fit now."""
    now: Counter[Spots]
    """The nodes as they are, beside the other roles' pods."""
    if_recreated: Counter[Spots]
    """The nodes as they would be if all of the job's pods were created again, this role's last."""


def advice(evidence: Evidence, short: Short, *, fits_alone: bool) -> tuple[Advice, ...]:
    """Return what would be enough, the mildest first; `fits_alone` if only other pods are in the way."""
    demand = short.demand
    sizes = (
        fewer_replicas(evidence, demand, demand.replicas - demand.waiting + short.placed),
        _smaller(evidence, short),
    )
    mildest = sorted((each for each in sizes if each), key=lambda each: -each.keeps)
    # Last, for nodes are mostly closed on purpose.
    mildest += [opened] if (opened := _opened(evidence, short)) else []
    if fits_alone:
        return (*mildest[:2], Advice("wait until other pods free up room"))
    return tuple(mildest) or (Advice(f"add nodes that a {demand.role} fits on and may be scheduled to"),)


def _opened(evidence: Evidence, short: Short) -> Advice | None:
    """Find the fewest barriers without which all pods of the role fit."""
    closed = {spot.barriers for spot in short.if_recreated if spot.barriers}
    for barriers in sorted(closed, key=lambda each: (len(each), sorted(each)))[:TRIED_SETS]:
        if cluster.fit(short.if_recreated, short.needs, despite=barriers) < short.demand.replicas:
            continue
        if advice := _without(evidence, short.demand, sorted(barriers)):
            return advice
    return None


def _without(evidence: Evidence, demand: Demand, barriers: list[Barrier]) -> Advice | None:
    if barriers == [Barrier(Kind.CORDON)]:
        return _uncordon(evidence)
    words, ops = [], list[JsonObject]()
    given = demand.spec.template.get("spec") or {}
    taints = [barrier.what for barrier in barriers if barrier.kind is Kind.TAINT]
    if taints:
        words.append(f"let the {demand.role} tolerate {' and '.join(taints)}")
        tolerations = [*(given.get("tolerations") or ()), *(_toleration(taint) for taint in taints)]
        ops.append(set_op(template_path(demand.role, "tolerations"), tolerations))
    for barrier in barriers:
        key = barrier.what.partition("=")[0]
        if barrier.kind is Kind.LABEL and key in (given.get("nodeSelector") or {}):
            words.append(f"remove {key} from spec.{demand.role}.template.spec.nodeSelector")
            ops.append(remove_op(template_path(demand.role, "nodeSelector", key)))
        elif barrier.kind is Kind.AFFINITY and _has(given, _AFFINITY):
            words.append(f"remove the required nodeAffinity from spec.{demand.role}.template.spec")
            ops.append(remove_op(template_path(demand.role, *_AFFINITY)))
        elif barrier.kind is not Kind.TAINT:
            return None
    labels = [barrier.what for barrier in barriers if barrier.kind is Kind.LABEL]
    also = f", or give nodes the label {' and '.join(labels)}" if labels else ""
    return Advice(f"{' and '.join(words)}{also}", patch(evidence.job, *ops), then=recreate(evidence))


def _uncordon(evidence: Evidence) -> Advice:
    nodes = [node.metadata.name for node in evidence.nodes or () if node.spec.unschedulable]
    ops = (set_op(("spec", "unschedulable"), value=False),)
    change = Change("node", nodes[0], ops) if len(nodes) == 1 else None
    return Advice(f"uncordon {', '.join(nodes[:NAMED_NODES])}, if nothing is wrong there", change)


def _toleration(taint: str) -> JsonObject:
    pair, _, effect = taint.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "operator": "Equal", "value": value, "effect": effect}


def _has(given: JsonObject, path: tuple[str, ...]) -> bool:
    place: object = given
    for part in path:
        place = place.get(part) if isinstance(place, dict) else None
    return place is not None


def _smaller(evidence: Evidence, short: Short) -> Advice | None:
    """Find the largest requests with which all pods of the role fit, if they are created again."""
    open_now = Counter({spot: count for spot, count in short.if_recreated.items() if not spot.barriers})
    names = [name for name in short.needs.amounts if name != PODS]
    alone = (smaller_pods(evidence, short.demand, most) for most in _one_smaller(short, open_now, names))
    found = [advice for advice in alone if advice]
    if found:
        return max(found, key=lambda each: each.keeps)
    most = _all_smaller(short, open_now, names)
    return smaller_pods(evidence, short.demand, most) if most else None


def _one_smaller(short: Short, nodes: Counter[Spots], names: list[str]) -> Iterator[Most]:
    """Yield, for each resource that alone would do, the most that a pod may ask for of it."""
    for name in names:
        unit, wanted = _unit(name), short.needs.amounts[name]

        def fits(units: int, name: str = name, unit: int = unit) -> bool:
            needs = short.needs.with_amount(name, units * unit)
            return cluster.fit(nodes, needs) >= short.demand.replicas

        if units := _largest(fits, wanted // unit):
            yield {(REQUESTS, name): cluster.from_nanos(units * unit, short.demand.requests[name])}


def _all_smaller(short: Short, nodes: Counter[Spots], names: list[str]) -> Most:
    """Return the most of several resources: all lowered by one factor, then put back where that fits."""

    def scaled(steps: int) -> Needs:
        needs = short.needs
        for name in names:
            amount = short.needs.amounts[name] * steps // _STEPS // _unit(name) * _unit(name)
            needs = needs.with_amount(name, max(1, amount))
        return needs

    def fits(needs: Needs) -> bool:
        return cluster.fit(nodes, needs) >= short.demand.replicas

    steps = _largest(lambda steps: fits(scaled(steps)), _STEPS - 1)
    if not steps:
        return {}
    needs = scaled(steps)
    for name in names:
        kept = needs.with_amount(name, short.needs.amounts[name])
        needs = kept if fits(kept) else needs
    return {
        (REQUESTS, name): cluster.from_nanos(needs.amounts[name], short.demand.requests[name])
        for name in names
        if needs.amounts[name] < short.needs.amounts[name]
    }


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that fits, 0 if none does; all below one that fits fit too."""
    least, beyond = 0, most + 1
    while beyond - least > 1:
        middle = (least + beyond) // 2
        least, beyond = (middle, beyond) if fits(middle) else (least, middle)
    return least


def _unit(resource: str) -> int:
    if resource in NATIVE or resource.startswith("hugepages-"):
        return _UNITS.get(resource, _MEBI)
    return _ONE
