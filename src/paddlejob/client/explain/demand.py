"""What a job asks for, role by role, exactly as the scheduler and the quotas count it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from paddlejob.api.quantity import Quantity, parse
from paddlejob.api.v1 import Role, RoleSpec
from paddlejob.client.explain.evidence import Evidence, template_shape
from paddlejob.client.explain.objects import (
    Container,
    ContainerResources,
    LimitRangeItem,
    PlacedSpec,
    PodShape,
)
from paddlejob.core.gang.requests import pod_requests
from paddlejob.core.status import plural

NANO = 10**9
PODS = "pods"
"""A pod counts itself as one of these, which nodes and quotas have only so many of."""


class Demand(msgspec.Struct, frozen=True):
    """The pods of one role."""

    role: Role
    spec: RoleSpec
    shape: PodShape
    """One of its pods as it was admitted, or else the template with the defaults of the namespace."""
    requests: dict[str, Quantity]
    limits: dict[str, Quantity]
    missing: int
    """Pods that have not been created."""
    waiting: int
    """Pods without a node, created or not."""

    @property
    def replicas(self) -> int:
        """How many pods the role is to have."""
        return self.spec.replicas

    def counted(self, count: int) -> str:
        """Such as `3 workers`."""
        return plural(count, self.role)


def demands(evidence: Evidence) -> tuple[Demand, ...]:
    """Return the demand of each role whose template can be read."""
    found = (_demand(evidence, role, spec) for role, spec in evidence.roles)
    return tuple(demand for demand in found if demand is not None)


def requests_of(pod: PodShape | PlacedSpec) -> dict[str, Quantity]:
    """Return what the scheduler counts for a pod, itself included; amounts that mean nothing are none."""
    try:
        return {**pod_requests(msgspec.to_builtins(pod)), PODS: parse(1)}
    except ValueError:
        return {PODS: parse(1)}


def limits_of(pod: PodShape) -> dict[str, Quantity]:
    """Return what a quota counts as the limits of a pod."""
    return requests_of(
        replace(
            pod, containers=_limits_only(pod.containers), init_containers=_limits_only(pod.init_containers)
        )
    )


def readable(amounts: Mapping[str, int | float | str]) -> dict[str, Quantity]:
    """Return the amounts that mean something."""
    found = ((name, _read(amount)) for name, amount in amounts.items())
    return {name: amount for name, amount in found if amount is not None}


def nanos(amount: Quantity) -> int:
    """Return an amount in nanos, the finest that Kubernetes knows: whole numbers are added quickly."""
    return amount.amount.numerator * NANO // amount.amount.denominator


def in_nanos(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    """Return amounts in nanos."""
    return {name: nanos(amount) for name, amount in amounts.items()}


@lru_cache(maxsize=4096)
def _read(amount: int | float | str) -> Quantity | None:  # noqa: PYI041  (what JSON has)
    try:
        return parse(amount)
    except ValueError:
        return None


def _demand(evidence: Evidence, role: Role, spec: RoleSpec) -> Demand | None:
    template = template_shape(spec)
    shape = evidence.shapes.get(role) or (_defaulted(evidence, template) if template else None)
    if shape is None:
        return None
    missing = sum(replica.role is role for replica in evidence.missing)
    unplaced = sum(member.replica.role is role for member in evidence.unplaced)
    return Demand(role, spec, shape, requests_of(shape), limits_of(shape), missing, missing + unplaced)


def _defaulted(evidence: Evidence, shape: PodShape) -> PodShape:
    """Fill in what the namespace's LimitRanges give to containers that do not say themselves."""
    rules = [item for each in evidence.limit_ranges for item in each.spec.limits if item.type == "Container"]
    for rule in rules:
        shape = replace(
            shape,
            containers=tuple(_with_defaults(each, rule) for each in shape.containers),
            init_containers=tuple(_with_defaults(each, rule) for each in shape.init_containers),
        )
    return shape


def _with_defaults(container: Container, rule: LimitRangeItem) -> Container:
    given = container.resources
    # A limit alone is a request too, before any default.
    requests = {**rule.default_request, **given.limits, **given.requests}
    limits = {**rule.default, **given.limits}
    return replace(container, resources=ContainerResources(requests, limits))


def _limits_only(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(
        replace(each, resources=ContainerResources(requests=each.resources.limits)) for each in containers
    )
