"""Changes of a job that make it smaller or less particular, as advice with an exact patch."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec
from msgspec.structs import replace

from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Reason
from paddlejob.api.quantity import ZERO, Quantity
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.client.explain.demand import Demand, limits_of, readable, requests_of
from paddlejob.client.explain.evidence import Evidence, template_shape
from paddlejob.client.explain.objects import Container, ContainerResources, PodShape
from paddlejob.client.explain.result import Advice, Change, Then
from paddlejob.core.gang.model import GangSystem

REQUESTS, LIMITS = "requests", "limits"
JOB = "pdj"
NATIVE = ("cpu", "memory", "ephemeral-storage")
"""Resources whose limit may be larger than the request."""
_CENTI, _DECI, _MEBI = Fraction(1, 100), Fraction(1, 10), Fraction(2**20)
_LEAST = Fraction(1, 1000)
"""No advice is to lower a request to less than this part of it: nobody could follow it."""


def fewer_replicas(evidence: Evidence, demand: Demand, count: int) -> Advice | None:
    """Lower the replicas of a role to so many, None where the job cannot do with them."""
    if not max(1, demand.spec.requests or 0) <= count < demand.replicas:
        return None
    # The size of a gang of Kubernetes 1.36 is fixed while it has pods.
    is_native = evidence.gang is not None and evidence.gang.system is GangSystem.NATIVE
    path = f"spec.{demand.role}.replicas"
    return Advice(
        f"lower {path} from {demand.replicas} to {count}",
        patch(evidence.job, set_op(("spec", demand.role, "replicas"), count)),
        then=recreate(evidence) if is_native else Then.NOTHING,
        keeps=count / demand.replicas,
    )


def smaller_pods(
    evidence: Evidence, demand: Demand, most: Mapping[tuple[str, str], Quantity]
) -> Advice | None:
    """Lower what each pod of a role asks for, given as the most of `("requests", "cpu")` and the like.

    None where no change of one container does that, or where too little would be left.
    """
    shape, words, keeps = demand.shape, list[str](), Fraction(1)
    # Limits first: a request must not be larger than its limit.
    for (kind, resource), amount in sorted(most.items()):
        if _total(shape, kind).get(resource, ZERO).amount <= amount.amount:
            continue
        lowered = _lowered(shape, kind, resource, amount)
        if lowered is None:
            return None
        index, before, after = lowered
        shape = _with(shape, index, kind, resource, after)
        if _total(shape, kind)[resource].amount > amount.amount:
            return None
        keeps = min(keeps, after.amount / before.amount)
        given = demand.shape.containers[index].resources
        field = kind if kind == LIMITS or resource in NATIVE or resource in given.requests else LIMITS
        path = f"spec.{demand.role}.template.spec.containers[{index}].resources.{field}.{resource}"
        words.append(f"{path} from {before} to {after}")
    ops = _resource_ops(demand, shape)
    if not words or keeps < _LEAST or ops is None:
        return None
    text = f"lower {' and '.join(words)}"
    return Advice(text, patch(evidence.job, *ops), then=recreate(evidence), keeps=float(keeps))


def _total(shape: PodShape, kind: str) -> dict[str, Quantity]:
    return limits_of(shape) if kind == LIMITS else requests_of(shape)


def _lowered(
    shape: PodShape, kind: str, resource: str, most: Quantity
) -> tuple[int, Quantity, Quantity] | None:
    """Return the container that asks for most, what it asks for, and what it may ask for."""
    amounts = [_amount(container, kind, resource) for container in shape.containers]
    before = max(amounts, key=lambda each: each.amount, default=ZERO)
    room = before.amount - (_total(shape, kind)[resource].amount - most.amount)
    index = amounts.index(before) if amounts else 0
    limit = shape.containers[index].resources.limits.get(resource) if amounts else None
    if kind == REQUESTS and limit is not None:
        room = min(room, readable({resource: limit}).get(resource, before).amount)
    after = rounded(resource, room)
    return (index, before, after) if 0 < after.amount < before.amount else None


def _amount(container: Container, kind: str, resource: str) -> Quantity:
    given = container.resources
    asked = given.limits if kind == LIMITS else {**given.limits, **given.requests}
    return readable(asked).get(resource, ZERO)


def _with(shape: PodShape, index: int, kind: str, resource: str, amount: Quantity) -> PodShape:
    """Return a shape in which a container asks for another amount; what is tied to it follows."""
    container = shape.containers[index]
    resources, text = container.resources, str(amount)
    limits, requests = dict(resources.limits), dict(resources.requests)
    if kind == LIMITS or (resource not in NATIVE and resource in limits):
        limits[resource] = text
    asked = readable(requests).get(resource)
    is_asked = kind == REQUESTS and (resource in NATIVE or resource not in limits)
    if is_asked or (asked is not None and asked.amount > amount.amount):
        requests[resource] = text
    changed = replace(container, resources=ContainerResources(requests, limits))
    containers = (*shape.containers[:index], changed, *shape.containers[index + 1 :])
    return replace(shape, containers=containers)


def _resource_ops(demand: Demand, shape: PodShape) -> tuple[JsonObject, ...] | None:
    """Return how the template becomes such a shape, None where the containers are not the template's."""
    template = template_shape(demand.spec)
    if template is None:
        return None
    ops = []
    for index, (before, after) in enumerate(zip(demand.shape.containers, shape.containers, strict=True)):
        if before == after:
            continue
        if index >= len(template.containers) or template.containers[index].name != after.name:
            return None
        given: JsonObject = msgspec.to_builtins(template.containers[index].resources)
        for kind in (REQUESTS, LIMITS):
            old, new = getattr(before.resources, kind), getattr(after.resources, kind)
            changed = {name: amount for name, amount in new.items() if old.get(name) != amount}
            given |= {kind: {**given.get(kind, {}), **changed}} if changed else {}
        ops.append(set_op(template_path(demand.role, "containers", index, "resources"), given))
    return tuple(ops)


def rounded(resource: str, amount: Fraction) -> Quantity:
    """Return an amount that a person would write, not more than the given one."""
    if resource == "cpu":
        step = _DECI if amount >= 1 else _CENTI
        return Quantity(amount // step * step)
    if resource in NATIVE or resource.startswith("hugepages-"):
        return Quantity(amount // _MEBI * _MEBI, binary=True)
    return Quantity(Fraction(amount // 1))


def patch(job: PaddleJob, *ops: JsonObject) -> Change:
    """Return a patch of the job."""
    return Change(JOB, job.name, ops)


def set_op(path: tuple[str | int, ...], value: object) -> JsonObject:
    """Set a field whose parent exists, whether or not it is there."""
    return {"op": "add", "path": pointer(path), "value": value}


def remove_op(path: tuple[str | int, ...]) -> JsonObject:
    """Remove a field that is there."""
    return {"op": "remove", "path": pointer(path)}


def pointer(path: tuple[str | int, ...]) -> str:
    """Return the JSON Pointer of a path."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def recreate(evidence: Evidence) -> Then:
    """Return what it takes for a change of a template to reach all pods, also those created meanwhile."""
    none_can_be = not evidence.pods and evidence.job.status.reason == Reason.CREATE_FAILED
    return Then.NOTHING if none_can_be else Then.RECREATE


def template_path(role: Role, *more: str | int) -> tuple[str | int, ...]:
    """Return the path of a field of a role's pod template."""
    return ("spec", str(role), "template", "spec", *more)
