"""Count the free room on nodes, and find the barriers that keep a role's pods off each node.

Amounts are integers in nanos, the smallest unit of Kubernetes: exact fractions are too slow for ten thousand
nodes.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

import msgspec

from paddlejob.api.quantity import ZERO, Quantity
from paddlejob.api.v1 import Role
from paddlejob.client.explain.demand import NANO, Demand, parse_amounts, to_nanos
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.objects import Node, NodeTerm, NodeTerms, Requirement, Taint, Toleration

CORDON_TAINT = "node.kubernetes.io/unschedulable"
_KUBERNETES_PREFIX = "node.kubernetes.io/"

FreeRoom = dict[str, dict[str, int]]
"""By node name: the free amount of each resource, in nanos."""


class BarrierKind(enum.StrEnum):
    """A reason other than room that keeps a pod off a node."""

    CORDON = "cordon"
    UNHEALTHY = "unhealthy"
    """A taint that Kubernetes itself sets while something is wrong with the node."""
    TAINT = "taint"
    LABEL = "label"
    AFFINITY = "affinity"
    VOLUME = "volume"


class Barrier(msgspec.Struct, frozen=True, order=True):
    """One reason why the pods of a role cannot run on a node."""

    kind: BarrierKind
    detail: str = ""
    """The missing label, the taint, or the claim of the volume."""


class Cluster:
    """The nodes: their sizes, their free room, and their barriers for each role."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._nodes = {node.metadata.name: node for node in evidence.nodes or ()}
        self._barriers: dict[Role, dict[str, frozenset[Barrier]]] = {}
        self.sizes: FreeRoom = {
            name: to_nanos(parse_amounts(node.status.allocatable)) for name, node in self._nodes.items()
        }

    def empty_nodes(self) -> FreeRoom:
        """Return the nodes as if no pod ran on them."""
        return {name: dict(size) for name, size in self.sizes.items()}

    def free_room(self) -> FreeRoom:
        """Return the nodes with the room that their pods leave free."""
        used = self._evidence.used
        return {
            node: {name: amount - used.get(node, {}).get(name, 0) for name, amount in size.items()}
            for node, size in self.sizes.items()
        }

    def barriers(self, demand: Demand) -> dict[str, frozenset[Barrier]]:
        """Return the barriers of every node for the pods of a role."""
        if demand.role not in self._barriers:
            terms = _volume_terms(self._evidence, demand)
            self._barriers[demand.role] = {
                name: frozenset(_find_barriers(node, demand, terms)) for name, node in self._nodes.items()
            }
        return self._barriers[demand.role]

    def open_nodes(self, demand: Demand) -> list[str]:
        """Return the names of the nodes that have no barrier for the pods of a role."""
        return [name for name, barriers in self.barriers(demand).items() if not barriers]

    def place(self, free: FreeRoom, demand: Demand, count: int) -> int:
        """Place up to `count` pods of a role, on the fullest nodes first, and return how many fit."""
        requests = pod_requests(demand)
        capacities = {node: capacity(free[node], requests) for node in self.open_nodes(demand)}
        placed = 0
        for node in sorted(capacities, key=lambda node: capacities[node]):
            pods = min(capacities[node], count - placed)
            placed += pods
            if pods:
                for name, amount in requests.items():
                    free[node][name] -= amount * pods
        return placed


def pod_requests(demand: Demand) -> dict[str, int]:
    """Return the requests of one pod in nanos. Never empty: a pod always takes one of the node's `pods`."""
    return to_nanos({name: amount for name, amount in demand.requests.items() if amount.amount > 0})


def capacity(free: Mapping[str, int], requests: Mapping[str, int]) -> int:
    """Return how many pods with these requests fit."""
    return max(0, min(free.get(name, 0) // amount for name, amount in requests.items()))


def largest_request(
    nodes: Iterable[Mapping[str, int]], requests: Mapping[str, int], resource: str, count: int
) -> int:
    """Return the largest request of one resource with which `count` pods fit, 0 if there is none.

    `k` pods fit on a node if each requests at most a k-th of its free room. So the answer is the
    `count`-th largest of all these shares.
    """
    others = {name: amount for name, amount in requests.items() if name != resource}
    shares = (
        free.get(resource, 0) // pods
        for free in nodes
        for pods in range(1, min(count, capacity(free, others)) + 1)
    )
    largest = heapq.nlargest(count, shares)
    return max(0, largest[-1]) if len(largest) == count else 0


def from_nanos(amount: int, like: Quantity = ZERO) -> Quantity:
    """Return an amount in the notation of another one."""
    return Quantity(Fraction(amount, NANO), like.binary)


def _find_barriers(node: Node, demand: Demand, volume_terms: Mapping[str, NodeTerms]) -> Iterator[Barrier]:
    shape, labels, name = demand.shape, node.metadata.labels, node.metadata.name
    if node.spec.unschedulable and not _tolerates(shape.tolerations, Taint(CORDON_TAINT, "", "NoSchedule")):
        yield Barrier(BarrierKind.CORDON)
    for taint in node.spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not _tolerates(shape.tolerations, taint):
            yield _taint_barrier(taint)
    for key, value in shape.node_selector.items():
        if labels.get(key) != value:
            yield Barrier(BarrierKind.LABEL, f"{key}={value}")
    affinity = shape.affinity.node_affinity if shape.affinity else None
    if affinity and affinity.required and not _satisfies(labels, name, affinity.required):
        yield Barrier(BarrierKind.AFFINITY)
    for claim, terms in volume_terms.items():
        if not _satisfies(labels, name, terms):
            yield Barrier(BarrierKind.VOLUME, claim)


def _taint_barrier(taint: Taint) -> Barrier:
    if taint.key == CORDON_TAINT:
        return Barrier(BarrierKind.CORDON)
    is_unhealthy = taint.key.startswith(_KUBERNETES_PREFIX)
    return Barrier(BarrierKind.UNHEALTHY if is_unhealthy else BarrierKind.TAINT, str(taint))


def _volume_terms(evidence: Evidence, demand: Demand) -> dict[str, NodeTerms]:
    """Return, by claim, the nodes that can reach its volume, for volumes that not every node can reach."""
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
    """Return whether a node satisfies a term. A term without rules matches no node."""
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
