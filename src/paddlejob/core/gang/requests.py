"""How much room a gang needs: what the scheduler counts for its pods, added up."""

from __future__ import annotations

from collections.abc import Iterable

from paddlejob.api.meta import JsonObject
from paddlejob.api.quantity import Quantity, Resources, largest, parse_all, total, write_all


def pod_requests(pod_spec: JsonObject) -> dict[str, Quantity]:
    """Return what the scheduler counts for one pod.

    Its containers run beside its sidecars. Each init container runs before them, beside the sidecars that
    were declared before it. The larger of the two counts, for each resource, and the overhead on top. Amounts
    for the pod as a all_pods go before those of its containers.

    Assumes a valid spec. What an admission plugin adds later, such as a RuntimeClass' overhead or a
    LimitRange's defaults, is not known here.
    Raises ValueError for an amount that is none.
    """
    containers = total(_requests(container) for container in pod_spec.get("containers") or ())
    peaks, sidecars = _init_peaks(pod_spec.get("initContainers") or ())
    counted = largest((total((containers, sidecars)), *peaks))
    counted.update(_whole_pod_requests(pod_spec.get("resources") or {}, counted))
    return total((counted, parse_all(pod_spec.get("overhead") or {})))


def gang_requests(pods: Iterable[tuple[JsonObject, int]]) -> dict[str, str]:
    """Return the room for several pods, given as pod specs and how many of each, without zero amounts.

    Raises ValueError for an amount that is none.
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
    """Return what a container asks for; a limit alone is a request too."""
    resources: JsonObject = container.get("resources") or {}
    return parse_all({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _whole_pod_requests(resources: JsonObject, containers: Resources) -> dict[str, Quantity]:
    """Return what a pod asks for as a whole; a limit alone counts where no container asks."""
    limits = {
        name: limit for name, limit in (resources.get("limits") or {}).items() if name not in containers
    }
    return parse_all({**limits, **(resources.get("requests") or {})})
