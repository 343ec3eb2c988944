"""Find quotas that have no room for the pods that are not created yet."""

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
    lower_resources,
    round_down,
    set_op,
)
from paddlejob.client.explain.demand import PODS, Demand, demands, parse_amounts
from paddlejob.client.explain.evidence import Evidence
from paddlejob.client.explain.objects import PodShape, ResourceQuota, ScopeExpression
from paddlejob.client.explain.result import Advice, Change, Finding


class QuotaLine(msgspec.Struct, frozen=True):
    """One resource of a quota."""

    quota: str
    key: str
    """The key in the quota, such as `requests.cpu`."""
    kind: str
    resource: str
    hard: Quantity
    used: Quantity
    selected: frozenset[str]
    """The roles that the quota counts."""

    @property
    def left(self) -> Fraction:
        """The unused amount, negative if the quota was lowered below its use."""
        return self.hard.amount - self.used.amount

    def per_pod(self, demand: Demand) -> Fraction:
        """Return the amount that the quota counts for one pod of a role."""
        counted = demand.limits if self.kind == LIMITS else demand.requests
        return counted.get(self.resource, ZERO).amount if demand.role in self.selected else Fraction(0)

    def quantity(self, amount: Fraction) -> Quantity:
        """Return an amount in the notation of this line."""
        return Quantity(amount, binary=self.hard.binary or self.used.binary)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Find quotas without room for all missing pods."""
    asked = demands(evidence)
    if not any(demand.missing for demand in asked):
        return
    lines = [line for quota in evidence.quotas for line in _lines(quota, asked)]
    short = [line for line in lines if _needed(line, asked) > max(line.left, Fraction(0))]
    if short:
        yield _finding(evidence, asked, short)


def _lines(quota: ResourceQuota, asked: tuple[Demand, ...]) -> Iterator[QuotaLine]:
    hard, used = parse_amounts(quota.status.hard), parse_amounts(quota.status.used)
    selected = frozenset(str(each.role) for each in asked if _selects(quota, each.shape))
    for key, amount in hard.items():
        kind, resource = _meaning(key)
        if resource and selected:
            name = quota.metadata.name
            yield QuotaLine(name, key, kind, resource, amount, used.get(key, ZERO), selected)


def _meaning(key: str) -> tuple[str, str]:
    """Return the field and resource of a pod that a key counts, empty texts if it counts other objects."""
    if key in (PODS, f"count/{PODS}"):
        return REQUESTS, PODS
    if key in NATIVE:
        return REQUESTS, key
    kind, _, resource = key.partition(".")
    return (kind, resource) if kind in (REQUESTS, LIMITS) and resource != "storage" else ("", "")


def _selects(quota: ResourceQuota, pod: PodShape) -> bool:
    """Return whether a quota counts such pods."""
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


def _needed(line: QuotaLine, asked: tuple[Demand, ...]) -> Fraction:
    """Return the amount that the missing pods need."""
    return sum((line.per_pod(demand) * demand.missing for demand in asked), Fraction(0))


def _finding(evidence: Evidence, asked: tuple[Demand, ...], short: list[QuotaLine]) -> Finding:
    first = short[0]
    missing = " and ".join(each.count_pods(each.missing) for each in asked if each.missing)
    need = "needs" if len(evidence.missing) == 1 else "need"
    needed = first.quantity(_needed(first, asked))
    left = first.quantity(max(first.left, Fraction(0)))
    summary = (
        f"quota {first.quota} has {first.key} {left} of {first.hard} left, but {missing} to be created "
        f"{need} {needed}"
    )
    rank = evidence.missing[0]
    details = tuple(_describe(line, asked) for line in short)
    return Finding("QuotaExceeded", summary, str(rank), details, _advice(evidence, asked, short))


def _describe(line: QuotaLine, asked: tuple[Demand, ...]) -> str:
    own = sum((line.per_pod(each) * (each.replicas - each.missing) for each in asked), Fraction(0))
    own = min(own, line.used.amount)
    all_of_it = line.quantity(own + _needed(line, asked))
    others = line.quantity(line.used.amount - own)
    return (
        f"quota {line.quota}, {line.key} {line.hard}: the whole job needs {all_of_it} and uses "
        f"{line.quantity(own)}; others use {others}"
    )


def _advice(evidence: Evidence, asked: tuple[Demand, ...], short: list[QuotaLine]) -> tuple[Advice, ...]:
    """Return changes that are enough for all lines, changes of the job first."""
    found = []
    for demand in asked:
        if demand.missing and all(line.per_pod(demand) for line in short):
            others = tuple(each for each in asked if each is not demand)
            left = [line.left - _needed(line, others) for line in short]
            found += [_fewer(evidence, demand, short, left), _smaller(evidence, demand, short, left)]
    changes = sorted((each for each in found if each), key=lambda each: -each.keeps)
    return (*changes, _raise(asked, short))


def _fewer(evidence: Evidence, demand: Demand, short: list[QuotaLine], left: list[Fraction]) -> Advice | None:
    """Lower the replicas of one role to the number that fits together with the other roles."""
    fits = min(amount // line.per_pod(demand) for line, amount in zip(short, left, strict=True))
    return fewer_replicas(evidence, demand, demand.replicas - demand.missing + max(0, fits))


def _smaller(
    evidence: Evidence, demand: Demand, short: list[QuotaLine], left: list[Fraction]
) -> Advice | None:
    """Lower the resources of all pods of a role, including the existing ones."""
    maximum = {}
    for line, amount in zip(short, left, strict=True):
        existing = line.per_pod(demand) * (demand.replicas - demand.missing)
        room = (amount + existing) / demand.replicas
        if line.resource == PODS or room <= 0:
            return None
        maximum[line.kind, line.resource] = round_down(line.resource, room)
    return lower_resources(evidence, demand, maximum)


def _raise(asked: tuple[Demand, ...], short: list[QuotaLine]) -> Advice:
    raised = [(line, line.quantity(line.used.amount + _needed(line, asked))) for line in short]
    lines = (f"{line.key} of {line.quota} from {line.hard} to {enough}" for line, enough in raised)
    ops = tuple(set_op(("spec", "hard", line.key), str(enough)) for line, enough in raised)
    is_one = len({line.quota for line in short}) == 1
    change = Change("resourcequota", short[0].quota, ops) if is_one else None
    raised_to = " and ".join(lines)
    text = f"raise the quota: {raised_to} (ask an administrator); or wait until that much is released"
    return Advice(text, change)
