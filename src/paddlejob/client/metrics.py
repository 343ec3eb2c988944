"""Resource usage of pods, from the metrics server."""

from __future__ import annotations

from paddlejob.api import quantity
from paddlejob.api.meta import ObjectMeta, View
from paddlejob.client.job import Usage
from paddlejob.kube.resource import Resource

POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")


class _ContainerMetrics(View, frozen=True):
    usage: dict[str, str] = {}


class PodMetrics(View, frozen=True):
    """What the metrics server measured."""

    metadata: ObjectMeta
    containers: tuple[_ContainerMetrics, ...] = ()

    @property
    def usage(self) -> Usage:
        """The sum of the containers, in thousandths of a core and in Mi."""
        used = quantity.total(quantity.parse_all(each.usage) for each in self.containers)
        cores, memory = (used.get(name, quantity.ZERO).amount for name in ("cpu", "memory"))
        return Usage(f"{int(cores * 1000)}m", f"{int(memory) >> 20}Mi")
