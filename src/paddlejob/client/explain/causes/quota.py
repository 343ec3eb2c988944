"""Quotas of the namespace: whether the pods that are still to be created fit into them, all together."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import msgspec

from paddlejob.api.quantity import ZERO, Quantity
from paddlejob.client.explain.changes import (
    LIMITS,
    NATIVE,
    REQUESTS,
    fewer_replicas,
    rounded,
    set_op,
    smaller_pods,
)
from paddlejob.client.explain.demand import PODS, Demand, demands, readable
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.objects import PodShape, ResourceQuota, ScopeExpression
from paddlejob.client.explain.result import Advice, Change, Finding


class Item(msgspec.Struct, frozen=True):
    """One line of a quota."""

    quota: str
    key: str
    """As the quota has it, such as `requests.cpu`."""
    kind: str
    resource: str
    hard: Quantity
    used: Quantity
    selected: frozenset[str]
    """The roles whose pods it counts."""

    @property
    def left(self) -> Fraction:
        """How much is not used; below zero where the quota was lowered."""
        return self.hard.amount - self.used.amount

    def each(self, demand: Demand) -> Fraction:
        """Return what it counts for one pod of a role."""
        counted = demand.limits if self.kind == LIMITS else demand.requests
        return counted.get(self.resource, ZERO).amount if demand.role in self.selected else Fraction(0)

    def shown(self, amount: Fraction) -> Quantity:
        """Return an amount in the units of this line."""
        return Quantity(amount, binary=self.hard.binary or self.used.binary)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Find lines of quotas that have no room for all missing pods."""
    asked = demands(evidence)
    if not any(demand.missing for demand in asked):
        return
    items = [item for quota in evidence.quotas for item in _items(quota, asked)]
    short = [item for item in items if _needed(item, asked) > max(item.left, Fraction(0))]
    if short:
        yield _finding(evidence, asked, short)


def _items(quota: ResourceQuota, asked: tuple[Demand, ...]) -> Iterator[Item]:
    hard, used = readable(quota.status.hard), readable(quota.status.used)
    selected = frozenset(str(each.role) for each in asked if _selects(quota, each.shape))
    for key, amount in hard.items():
        kind, resource = _meaning(key)
        if resource and selected:
            name = quota.metadata.name
            yield Item(name, key, kind, resource, amount, used.get(key, ZERO), selected)


def _meaning(key: str) -> tuple[str, str]:
    """Return what a line of a quota counts of a pod; nothing where it counts other objects."""
    if key in (PODS, f"count/{PODS}"):
        return REQUESTS, PODS
    if key in NATIVE:
        return REQUESTS, key
    kind, _, resource = key.partition(".")
    return (kind, resource) if kind in (REQUESTS, LIMITS) and resource != "storage" else ("", "")


def _selects(quota: ResourceQuota, pod: PodShape) -> bool:
    """Tell whether a quota counts such pods."""
    selector = quota.spec.scope_selector
    plain = tuple(ScopeExpression(scope, "Exists") for scope in quota.spec.scopes)
    return all(_in_scope(rule, pod) for rule in (*plain, *(selector.match_expressions if selector else ())))


def _in_scope(rule: ScopeExpression, pod: PodShape) -> bool:
    containers = (*pod.containers, *pod.init_containers)
    best_effort = not any(each.resources.requests or each.resources.limits for each in containers)
    scopes = {
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
        "Terminating": pod.active_deadline_seconds is not None,
        "NotTerminating": pod.active_deadline_seconds is None,
    }
    if rule.scope_name != "PriorityClass":
        return scopes.get(rule.scope_name, False)
    name = pod.priority_class_name
    return {
        "In": name in rule.values,
        "NotIn": name not in rule.values,
        "Exists": bool(name),
        "DoesNotExist": not name,
    }.get(rule.operator, False)


def _needed(item: Item, asked: tuple[Demand, ...]) -> Fraction:
    return sum((item.each(demand) * demand.missing for demand in asked), Fraction(0))


def _finding(evidence: Evidence, asked: tuple[Demand, ...], short: list[Item]) -> Finding:
    first = short[0]
    missing = " and ".join(each.counted(each.missing) for each in asked if each.missing)
    need = "needs" if len(evidence.missing) == 1 else "need"
    needed = first.shown(_needed(first, asked))
    left = first.shown(max(first.left, Fraction(0)))
    summary = (
        f"quota {first.quota} has {first.key} {left} of {first.hard} left, but {missing} to be created "
        f"{need} {needed}"
    )
    rank = evidence.missing[0]
    details = tuple(_line(item, asked) for item in short)
    return Finding("QuotaExceeded", summary, str(rank), details, _advice(evidence, asked, short))


def _line(item: Item, asked: tuple[Demand, ...]) -> str:
    own = sum((item.each(each) * (each.replicas - each.missing) for each in asked), Fraction(0))
    own = min(own, item.used.amount)
    all_of_it = item.shown(own + _needed(item, asked))
    others = item.shown(item.used.amount - own)
    return (
        f"quota {item.quota}, {item.key} {item.hard}: the whole job needs {all_of_it} and uses "
        f"{item.shown(own)}; others use {others}"
    )


def _advice(evidence: Evidence, asked: tuple[Demand, ...], short: list[Item]) -> tuple[Advice, ...]:
    """Return changes that are enough for all lines, those of the job first."""
    mine = (
        change
        for demand in asked
        if demand.missing
        for change in (_fewer(evidence, asked, demand, short), _smaller(evidence, asked, demand, short))
        if change is not None
    )
    return (*sorted(mine, key=lambda each: -each.keeps), _raise(asked, short))


def _fewer(evidence: Evidence, asked: tuple[Demand, ...], demand: Demand, short: list[Item]) -> Advice | None:
    """Do without the pods of one role that have no room beside the missing ones of the others."""
    fits = [
        (item.left - _of_others(item, asked, demand)) // each for item in short if (each := item.each(demand))
    ]
    if len(fits) < len(short):
        return None
    return fewer_replicas(evidence, demand, demand.replicas - demand.missing + max(0, min(fits)))


def _smaller(
    evidence: Evidence, asked: tuple[Demand, ...], demand: Demand, short: list[Item]
) -> Advice | None:
    """Lower the requests of all pods of a role: existing pods are recreated too."""
    most = {}
    for item in short:
        own = item.each(demand) * (demand.replicas - demand.missing)
        room = (item.left + own - _of_others(item, asked, demand)) / demand.replicas
        if item.resource == PODS or not item.each(demand) or room <= 0:
            return None
        most[item.kind, item.resource] = rounded(item.resource, room)
    return smaller_pods(evidence, demand, most)


def _of_others(item: Item, asked: tuple[Demand, ...], demand: Demand) -> Fraction:
    return sum((item.each(each) * each.missing for each in asked if each is not demand), Fraction(0))


def _raise(asked: tuple[Demand, ...], short: list[Item]) -> Advice:
    raised = [(item, item.shown(item.used.amount + _needed(item, asked))) for item in short]
    lines = (f"{item.key} of {item.quota} from {item.hard} to {enough}" for item, enough in raised)
    ops = tuple(set_op(("spec", "hard", item.key), str(enough)) for item, enough in raised)
    is_one = len({item.quota for item in short}) == 1
    change = Change("resourcequota", short[0].quota, ops) if is_one else None
    raised_to = " and ".join(lines)
    text = f"raise the quota: {raised_to} (ask an administrator); or wait until that much is released"
    return Advice(text, change)
