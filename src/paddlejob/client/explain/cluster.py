"""The nodes as a scheduler sees them: what keeps a pod away from each, and how many pods have room.

Amounts are whole numbers of nanos, the finest that Kubernetes knows: ten thousand nodes are counted quickly.
"""

from __future__ import annotations

import enum
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

import msgspec

from paddlejob.api.quantity import ZERO, Quantity
from paddlejob.api.v1 import Role
from paddlejob.client.explain.demand import NANO, Demand, in_nanos, nanos, readable
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.objects import Node, NodeTerm, NodeTerms, Requirement, Taint, Toleration

CORDONED = "node.kubernetes.io/unschedulable"
_OF_KUBERNETES = "node.kubernetes.io/"


class Kind(enum.StrEnum):
    """What can keep a pod from a node."""

    CORDON = "cordon"
    SICK = "sick"
    """A taint that Kubernetes itself sets while something is wrong with the node."""
    TAINT = "taint"
    LABEL = "label"
    AFFINITY = "affinity"
    VOLUME = "volume"


class Barrier(msgspec.Struct, frozen=True, order=True):
    """One thing that keeps the pods of a role from a node."""

    kind: Kind
    what: str = ""
    """The label that is wanted, the taint, or the volume."""


class Room(msgspec.Struct):
    """A node, by name, and what is free on it."""

    node: str
    free: dict[str, int]


class Spots(msgspec.Struct, frozen=True):
    """Nodes that are alike to the pods of one role."""

    barriers: frozenset[Barrier]
    free: tuple[int, ...]
    """In the order of the resources that are asked for."""


class Needs(msgspec.Struct, frozen=True):
    """What one pod takes of a node, in nanos."""

    amounts: dict[str, int]

    def fit(self, free: Iterable[int]) -> int:
        """Return how many such pods have room, given what is free of each resource in order."""
        each = (room // amount for room, amount in zip(free, self.amounts.values(), strict=True))
        return max(0, min(each))

    def with_amount(self, resource: str, nanos: int) -> Needs:
        """Return the same with another amount of one resource."""
        return Needs({**self.amounts, resource: nanos})


class Cluster:
    """The nodes, measured once: what each has, what is used of it, what keeps the pods of a role away."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._nodes = {node.metadata.name: node for node in evidence.nodes or ()}
        self._sizes = {
            name: in_nanos(readable(node.status.allocatable)) for name, node in self._nodes.items()
        }
        self._barriers: dict[Role, dict[str, frozenset[Barrier]]] = {}

    def rooms(self, *, empty: bool = False) -> dict[str, Room]:
        """Return the nodes with what is free on them, or would be without any pods, by name."""
        if empty:
            return {name: Room(name, dict(size)) for name, size in self._sizes.items()}
        used = self._evidence.used
        return {name: Room(name, _left(size, used.get(name, {}))) for name, size in self._sizes.items()}

    def open_to(self, demand: Demand, rooms: Iterable[Room]) -> list[Room]:
        """Return the nodes that nothing but room keeps the pods of a role from."""
        barriers = self._barriers_of(demand)
        return [room for room in rooms if not barriers[room.node]]

    def spots(self, demand: Demand, rooms: Iterable[Room]) -> Counter[Spots]:
        """Count the nodes that are alike to the pods of a role."""
        barriers, names = self._barriers_of(demand), needs_of(demand).amounts
        return Counter(
            Spots(barriers[room.node], tuple(room.free.get(name, 0) for name in names)) for room in rooms
        )

    def _barriers_of(self, demand: Demand) -> dict[str, frozenset[Barrier]]:
        if demand.role not in self._barriers:
            reachable = _reachable(self._evidence, demand)
            self._barriers[demand.role] = {
                name: frozenset(_barriers(node, demand, reachable)) for name, node in self._nodes.items()
            }
        return self._barriers[demand.role]


def _left(size: Mapping[str, int], used: Mapping[str, int]) -> dict[str, int]:
    return {name: amount - used.get(name, 0) for name, amount in size.items()}


def needs_of(demand: Demand) -> Needs:
    """Return what one pod of a role takes: at least its own place among the pods of a node."""
    return Needs({name: nanos(each) for name, each in demand.requests.items() if each.amount > 0})


def from_nanos(amount: int, like: Quantity = ZERO) -> Quantity:
    """Return an amount as it is written, counted as another one is."""
    return Quantity(Fraction(amount, NANO), like.binary)


def give_back(room: Room, needs: Needs) -> None:
    """Count what a pod takes of its node as free."""
    for name, amount in needs.amounts.items():
        room.free[name] = room.free.get(name, 0) + amount


def take(rooms: Iterable[Room], needs: Needs, count: int) -> int:
    """Put up to so many pods on nodes, the tightest first; return how many found room."""
    placed = 0
    capacities = [(needs.fit(room.free.get(name, 0) for name in needs.amounts), room) for room in rooms]
    for capacity, room in sorted(capacities, key=lambda entry: entry[0]):
        here = min(capacity, count - placed)
        if here > 0:
            for name, amount in needs.amounts.items():
                room.free[name] -= amount * here
            placed += here
    return placed


def spread(rooms: Iterable[Room], needs: Needs, count: int) -> None:
    """Put so many pods on nodes one by one, always where most of them would fit, as schedulers mostly do."""
    fits = [(-needs.fit(room.free.get(name, 0) for name in needs.amounts), room.node, room) for room in rooms]
    heapq.heapify(fits)
    for _ in range(count):
        if not fits or not fits[0][0]:
            return
        capacity, node, room = fits[0]
        for name, amount in needs.amounts.items():
            room.free[name] -= amount
        heapq.heapreplace(fits, (capacity + 1, node, room))


def fit(of: Mapping[Spots, int], needs: Needs, *, despite: frozenset[Barrier] = frozenset()) -> int:
    """Return how many pods of a role have room, on nodes that nothing else keeps them from."""
    return sum(needs.fit(spot.free) * count for spot, count in of.items() if spot.barriers <= despite)


def _barriers(node: Node, demand: Demand, reachable: Mapping[str, NodeTerms]) -> Iterator[Barrier]:
    """Yield what keeps the pods of a role from a node, room apart."""
    shape, labels, name = demand.shape, node.metadata.labels, node.metadata.name
    if node.spec.unschedulable and not _tolerates(shape.tolerations, Taint(CORDONED, "", "NoSchedule")):
        yield Barrier(Kind.CORDON)
    for taint in node.spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not _tolerates(shape.tolerations, taint):
            yield _barrier(taint)
    for key, value in shape.node_selector.items():
        if labels.get(key) != value:
            yield Barrier(Kind.LABEL, f"{key}={value}")
    affinity = shape.affinity.node_affinity if shape.affinity else None
    if affinity and affinity.required and not _satisfies(labels, name, affinity.required):
        yield Barrier(Kind.AFFINITY)
    for volume, terms in reachable.items():
        if not _satisfies(labels, name, terms):
            yield Barrier(Kind.VOLUME, volume)


def _barrier(taint: Taint) -> Barrier:
    if taint.key == CORDONED:
        return Barrier(Kind.CORDON)
    return Barrier(Kind.SICK if taint.key.startswith(_OF_KUBERNETES) else Kind.TAINT, str(taint))


def _reachable(evidence: Evidence, demand: Demand) -> dict[str, NodeTerms]:
    """Return from where the volumes of a role's claims can be reached, where that is limited."""
    found = {}
    for name in demand.shape.claims:
        claim = (evidence.claims or {}).get(name)
        volume = evidence.volumes.get(claim.spec.volume_name) if claim else None
        affinity = volume.spec.node_affinity if volume else None
        if affinity and affinity.required:
            found[name] = affinity.required
    return found


def _tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(
        (not each.effect or each.effect == taint.effect)
        and (each.key == taint.key or (not each.key and each.operator == "Exists"))
        and (each.operator == "Exists" or each.value == taint.value)
        for each in tolerations
    )


def _satisfies(labels: Mapping[str, str], name: str, terms: NodeTerms) -> bool:
    return any(_matches(labels, name, term) for term in terms.node_selector_terms)


def _matches(labels: Mapping[str, str], name: str, term: NodeTerm) -> bool:
    """Tell whether a node satisfies a term; one without rules matches nothing."""
    by_field = {"metadata.name": name}
    return bool(term.match_expressions or term.match_fields) and (
        all(_holds(labels, rule) for rule in term.match_expressions)
        and all(_holds(by_field, rule) for rule in term.match_fields)
    )


def _holds(labels: Mapping[str, str], rule: Requirement) -> bool:
    value = labels.get(rule.key)
    match rule.operator:
        case "In":
            return value in rule.values
        case "NotIn":
            return value not in rule.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(value, rule)
    return False


def _compares(value: str | None, rule: Requirement) -> bool:
    try:
        given, bound = int(value or ""), int(rule.values[0])
    except (ValueError, IndexError):
        return False
    return given > bound if rule.operator == "Gt" else given < bound
