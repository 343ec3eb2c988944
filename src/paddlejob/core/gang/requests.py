"""The resources that a gang needs: the sum of the requests that the scheduler counts for its pods."""

from __future__ import annotations

from collections.abc import Iterable

from paddlejob.api.meta import JsonObject
from paddlejob.api.quantity import Quantity, Resources, largest, parse_all, total, write_all


def pod_requests(pod_spec: JsonObject) -> dict[str, Quantity]:
    """Return the requests that the scheduler counts for one pod.

    Its containers run together with its sidecars. Each init container runs before them, together with the
    sidecars declared before it. For each resource the larger of the two counts, plus the overhead. Pod-level
    resources take precedence over the containers'.

    Assumes a valid spec. Additions by admission plugins, such as the overhead of a RuntimeClass or the
    defaults of a LimitRange, are not included. Raises ValueError for an invalid amount.
    """
    containers = total(_requests(container) for container in pod_spec.get("containers") or ())
    peaks, sidecars = _init_peaks(pod_spec.get("initContainers") or ())
    counted = largest((total((containers, sidecars)), *peaks))
    counted.update(_pod_level_requests(pod_spec.get("resources") or {}, counted))
    return total((counted, parse_all(pod_spec.get("overhead") or {})))


def gang_requests(pods: Iterable[tuple[JsonObject, int]]) -> dict[str, str]:
    """Return the sum of the requests of pods, given as specs with counts, without zero amounts.

    Raises ValueError for an invalid amount.
    """
    summed = total(
        {name: amount * count for name, amount in pod_requests(spec).items()} for spec, count in pods
    )
    return write_all({name: amount for name, amount in summed.items() if amount.amount})


def _init_peaks(inits: Iterable[JsonObject]) -> tuple[list[Resources], Resources]:
    peaks: list[Resources] = []
    sidecars: Resources = {}
    for init in inits:
        if init.get("restartPolicy") == "Always":
            sidecars = total((sidecars, _requests(init)))
            peaks.append(sidecars)
        else:
            peaks.append(total((sidecars, _requests(init))))
    return peaks, sidecars


def _requests(container: JsonObject) -> dict[str, Quantity]:
    """Return the requests of a container; a limit without a request is one too."""
    resources: JsonObject = container.get("resources") or {}
    return parse_all({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _pod_level_requests(resources: JsonObject, containers: Resources) -> dict[str, Quantity]:
    """Return the pod-level requests; a limit counts if no container requests the resource."""
    limits = {
        name: limit for name, limit in (resources.get("limits") or {}).items() if name not in containers
    }
    return parse_all({**limits, **(resources.get("requests") or {})})
