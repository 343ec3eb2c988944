"""Advice with an exact JSON Patch: fewer replicas, lower requests and limits, other template fields."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Reason
from paddlejob.api.quantity import ZERO, Quantity
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.client.explain.demand import Demand, parse_amounts
from paddlejob.client.explain.evidence import Evidence, template_shape
from paddlejob.client.explain.objects import ContainerResources
from paddlejob.client.explain.result import Advice, Change, FollowUp
from paddlejob.core.gang.model import GangSystem

REQUESTS, LIMITS = "requests", "limits"
NATIVE = ("cpu", "memory", "ephemeral-storage")
"""Resources with a limit that may exceed the request."""
_CENTI, _DECI, _MEBI = Fraction(1, 100), Fraction(1, 10), Fraction(2**20)
_MIN_KEPT = Fraction(1, 1000)
"""Never advise lowering a request below this fraction; such advice is useless."""


def fewer_replicas(evidence: Evidence, demand: Demand, count: int) -> Advice | None:
    """Lower the replicas of a role to `count`, None if the job cannot run with so few."""
    if not max(1, demand.spec.requests or 0) <= count < demand.replicas:
        return None
    # In Kubernetes 1.36 the size of a gang cannot change while it has pods.
    is_native = evidence.gang is not None and evidence.gang.system is GangSystem.NATIVE
    return Advice(
        f"lower spec.{demand.role}.replicas from {demand.replicas} to {count}",
        patch(evidence.job, set_op(("spec", demand.role, "replicas"), count)),
        then=follow_up(evidence) if is_native else FollowUp.NOTHING,
        keeps=count / demand.replicas,
    )


def lower_resources(
    evidence: Evidence, demand: Demand, maximum: Mapping[tuple[str, str], Quantity]
) -> Advice | None:
    """Lower the resources of each pod of a role to at most `maximum`, with keys like `("requests", "cpu")`.

    For each resource, only the container that asks for most of it is changed. Returns None if that is not
    enough or if too little would be left. The advice has no patch if the template does not have the fields.
    """
    texts, amounts, kept = list[str](), dict[tuple[str | int, ...], str](), Fraction(1)
    is_own = True
    # Limits sort before requests: a request must not exceed its limit.
    for (kind, resource), limit in sorted(maximum.items()):
        containers = [_amount(each.resources, kind, resource) for each in demand.shape.containers]
        total = (demand.limits if kind == LIMITS else demand.requests).get(resource, ZERO).amount
        if total <= limit.amount:
            continue
        if total != sum(each.amount for each in containers):
            # Init containers, sidecars or the overhead of the pod count too.
            return None
        before = max(containers, key=lambda each: each.amount)
        after = round_down(resource, before.amount - (total - limit.amount))
        if after.amount <= before.amount * _MIN_KEPT:
            return None
        index = containers.index(before)
        is_own = is_own and _is_in_template(demand, index)
        fields = _fields_to_lower(demand.shape.containers[index].resources, kind, resource, after)
        amounts |= {("containers", index, "resources", field, resource): str(after) for field in fields}
        kept = min(kept, after.amount / before.amount)
        path = f"spec.{demand.role}.template.spec.containers[{index}].resources.{fields[0]}.{resource}"
        texts.append(f"{path} from {before} to {after}")
    if not texts:
        return None
    ops = [set_op(template_path(demand.role, *path), amount) for path, amount in amounts.items()]
    is_own = is_own and all(has_path(demand.template, path) for path in amounts)
    change = patch(evidence.job, *ops) if is_own else None
    return Advice(f"lower {' and '.join(texts)}", change, then=follow_up(evidence), keeps=float(kept))


def _is_in_template(demand: Demand, index: int) -> bool:
    """Return whether a container is in the template, not added by an admission plugin."""
    template = template_shape(demand.spec)
    containers = template.containers[index : index + 1] if template else ()
    return [each.name for each in containers] == [demand.shape.containers[index].name]


def _amount(resources: ContainerResources, kind: str, resource: str) -> Quantity:
    given = resources.limits if kind == LIMITS else {**resources.limits, **resources.requests}
    return parse_amounts(given).get(resource, ZERO)


def _fields_to_lower(resources: ContainerResources, kind: str, resource: str, amount: Quantity) -> list[str]:
    """Return the fields, `requests` or `limits` or both, that must be set together."""
    if resource not in NATIVE:
        return [field for field in (REQUESTS, LIMITS) if resource in getattr(resources, field)] or [kind]
    request = parse_amounts(resources.requests).get(resource, ZERO)
    return [kind, REQUESTS] if kind == LIMITS and request.amount > amount.amount else [kind]


def has_path(value: object, path: tuple[str | int, ...]) -> bool:
    """Return whether a field exists in an object of JSON and is not null."""
    for part in path:
        if isinstance(value, list) and isinstance(part, int):
            value = value[part] if part < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value is not None


def round_down(resource: str, amount: Fraction) -> Quantity:
    """Return the largest amount, at most the given one, that a person would write."""
    if resource == "cpu":
        step = _DECI if amount >= 1 else _CENTI
        return Quantity(amount // step * step)
    if resource in NATIVE or resource.startswith("hugepages-"):
        return Quantity(amount // _MEBI * _MEBI, binary=True)
    return Quantity(Fraction(amount // 1))


def patch(job: PaddleJob, *ops: JsonObject) -> Change:
    """Return a patch of the job."""
    return Change("pdj", job.name, ops)


def set_op(path: tuple[str | int, ...], value: object) -> JsonObject:
    """Add or replace a field of an existing object."""
    return {"op": "add", "path": _pointer(path), "value": value}


def remove_op(path: tuple[str | int, ...]) -> JsonObject:
    """Remove a field that exists."""
    return {"op": "remove", "path": _pointer(path)}


def _pointer(path: tuple[str | int, ...]) -> str:
    """Return a path as a JSON Pointer."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def follow_up(evidence: Evidence) -> FollowUp:
    """Return how a change of a template reaches the existing pods and those created in the meantime."""
    has_no_pods = not evidence.pods and evidence.job.status.reason == Reason.CREATE_FAILED
    return FollowUp.NOTHING if has_no_pods else FollowUp.RECREATE


def template_path(role: Role, *more: str | int) -> tuple[str | int, ...]:
    """Return the path of a field of a role's pod template."""
    return ("spec", str(role), "template", "spec", *more)
