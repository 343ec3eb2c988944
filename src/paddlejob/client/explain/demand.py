"""The resources that each role of a job asks for, counted as the scheduler and the quotas count them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from paddlejob.api.meta import JsonObject
from paddlejob.api.quantity import Quantity, parse
from paddlejob.api.v1 import Role, RoleSpec
from paddlejob.client.explain.evidence import Evidence, template_shape
from paddlejob.client.explain.objects import (
    Container,
    ContainerResources,
    LimitRangeItem,
    PodShape,
    ScheduledPodSpec,
)
from paddlejob.core.gang.requests import pod_requests
from paddlejob.core.status import plural

NANO = 10**9
PODS = "pods"
"""Nodes and quotas limit the number of pods as a resource of this name. Each pod requests 1."""


class Demand(msgspec.Struct, frozen=True):
    """The pods of one role."""

    role: Role
    spec: RoleSpec
    shape: PodShape
    """One of its pods as the API server admitted it, or the template with the defaults of the namespace."""
    requests: dict[str, Quantity]
    limits: dict[str, Quantity]
    missing: int
    """Pods that have not been created."""
    waiting: int
    """Pods without a node, created or not."""

    @property
    def replicas(self) -> int:
        """The number of pods that the role should have."""
        return self.spec.replicas

    @property
    def template(self) -> JsonObject:
        """The pod spec in the role's template."""
        return self.spec.template.get("spec") or {}

    def count_pods(self, count: int) -> str:
        """Return a text such as `3 workers`."""
        return plural(count, self.role)


def demands(evidence: Evidence) -> tuple[Demand, ...]:
    """Return the demand of each role with a valid template."""
    found = (_demand(evidence, role, spec) for role, spec in evidence.roles)
    return tuple(demand for demand in found if demand is not None)


def requests_of(pod: PodShape | ScheduledPodSpec) -> dict[str, Quantity]:
    """Return the requests of a pod as the scheduler counts them; only 1 pod if an amount is invalid."""
    try:
        return {**pod_requests(msgspec.to_builtins(pod)), PODS: parse(1)}
    except ValueError:
        return {PODS: parse(1)}


def limits_of(pod: PodShape) -> dict[str, Quantity]:
    """Return the limits of a pod as a quota counts them."""
    return requests_of(
        replace(
            pod, containers=_limits_only(pod.containers), init_containers=_limits_only(pod.init_containers)
        )
    )


def parse_amounts(amounts: Mapping[str, int | float | str]) -> dict[str, Quantity]:
    """Return the valid amounts, parsed."""
    found = ((name, _parse(amount)) for name, amount in amounts.items())
    return {name: amount for name, amount in found if amount is not None}


def to_nanos(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    """Return amounts in nanos, the smallest unit of Kubernetes, because integers are added quickly."""
    return {name: each.amount.numerator * NANO // each.amount.denominator for name, each in amounts.items()}


@lru_cache(maxsize=4096)
def _parse(amount: int | float | str) -> Quantity | None:  # noqa: PYI041  (the types in JSON)
    try:
        return parse(amount)
    except ValueError:
        return None


def _demand(evidence: Evidence, role: Role, spec: RoleSpec) -> Demand | None:
    template = template_shape(spec)
    shape = evidence.shapes.get(role) or (_add_defaults(evidence, template) if template else None)
    if shape is None:
        return None
    missing = sum(replica.role is role for replica in evidence.missing)
    unscheduled = sum(member.replica.role is role for member in evidence.unscheduled)
    return Demand(role, spec, shape, requests_of(shape), limits_of(shape), missing, missing + unscheduled)


def _add_defaults(evidence: Evidence, shape: PodShape) -> PodShape:
    """Add the defaults of the namespace's LimitRanges to containers that do not set resources."""
    rules = [item for each in evidence.limit_ranges for item in each.spec.limits if item.type == "Container"]
    for rule in rules:
        shape = replace(
            shape,
            containers=tuple(_add_default(each, rule) for each in shape.containers),
            init_containers=tuple(_add_default(each, rule) for each in shape.init_containers),
        )
    return shape


def _add_default(container: Container, rule: LimitRangeItem) -> Container:
    given = container.resources
    # A limit without a request is the request too, and wins over a default request.
    requests = {**rule.default_request, **given.limits, **given.requests}
    limits = {**rule.default, **given.limits}
    return replace(container, resources=ContainerResources(requests, limits))


def _limits_only(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(
        replace(each, resources=ContainerResources(requests=each.resources.limits)) for each in containers
    )
