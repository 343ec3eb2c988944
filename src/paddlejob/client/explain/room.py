"""How much room pods need, exactly: what the scheduler and the quotas count for them."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from paddlejob.api.quantity import Quantity, parse
from paddlejob.client.explain.objects import Amounts, PlacedSpec, PodShape
from paddlejob.core.gang.requests import pod_requests

PODS = "pods"


def requests_of(pod: PodShape | PlacedSpec) -> dict[str, Quantity]:
    """Return what the scheduler counts for a pod, itself included; amounts that mean nothing are none."""
    try:
        return {**pod_requests(msgspec.to_builtins(pod)), PODS: parse(1)}
    except ValueError:
        return {PODS: parse(1)}


def readable(amounts: Amounts) -> dict[str, Quantity]:
    """Return the amounts that mean something."""
    found = ((name, _read(amount)) for name, amount in amounts.items())
    return {name: amount for name, amount in found if amount is not None}


@lru_cache(maxsize=4096)
def _read(amount: int | float | str) -> Quantity | None:  # noqa: PYI041  (what JSON has)
    try:
        return parse(amount)
    except ValueError:
        return None
