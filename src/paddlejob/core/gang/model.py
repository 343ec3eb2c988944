"""Gangs as data: which schedulers place pods together, their resources, and what a cluster serves of them."""

from __future__ import annotations

import enum

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.resource import Resource
from paddlejob.api.v1 import Role
from paddlejob.core.actions import Kind


class Scheduling(enum.StrEnum):
    """What the platform team wants for jobs that do not say themselves: `--scheduling`."""

    AS_WRITTEN = ""
    """Only jobs that ask for it are gangs."""
    VOLCANO = "volcano"
    NATIVE = "native"
    AUTO = "auto"
    """Every job is a gang, of whatever the cluster has; of nothing where it has nothing."""


class GangSystem(enum.StrEnum):
    """Who schedules the pods of a gang; pods carry it as an annotation."""

    VOLCANO = "volcano"
    NATIVE = "native"
    KUEUE = "kueue"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of object that describe a gang to this scheduler, the preferred one first."""
        return tuple(_RESOURCES[self])


_VOLCANO, _NATIVE, _KUEUE = "scheduling.volcano.sh", "scheduling.k8s.io", "kueue.x-k8s.io"
_RESOURCES = {
    GangSystem.VOLCANO: {Kind.POD_GROUP: Resource(_VOLCANO, "v1beta1", "podgroups", "PodGroup")},
    GangSystem.NATIVE: {
        Kind.POD_GROUP_V1BETA1: Resource(_NATIVE, "v1beta1", "podgroups", "PodGroup"),
        Kind.POD_GROUP_V1ALPHA2: Resource(_NATIVE, "v1alpha2", "podgroups", "PodGroup"),
    },
    GangSystem.KUEUE: {
        Kind.WORKLOAD_V1BETA2: Resource(_KUEUE, "v1beta2", "workloads", "Workload"),
        Kind.WORKLOAD_V1BETA1: Resource(_KUEUE, "v1beta1", "workloads", "Workload"),
    },
}
GANG_RESOURCES = {kind: resource for kinds in _RESOURCES.values() for kind, resource in kinds.items()}
GROUP_KINDS = tuple(GANG_RESOURCES)

QUEUES = Resource(_VOLCANO, "v1beta1", "queues", "Queue", namespaced=False)
FLAVORS = {
    kind: Resource(_KUEUE, resource.version, "resourceflavors", "ResourceFlavor", namespaced=False)
    for kind, resource in _RESOURCES[GangSystem.KUEUE].items()
}
"""The resource flavors that belong to a kind of Workload."""


class GangApis(msgspec.Struct, frozen=True):
    """Kinds of groups that the cluster serves, as far as is known."""

    ready: frozenset[Kind] = frozenset()
    """Served, and all of their objects are known."""
    loading: frozenset[Kind] = frozenset()
    """It is being found out whether they are served, or their objects are being listed."""
    trouble: dict[Kind, str] = {}
    """Served but not accessible, and why."""

    def kind_of(self, system: GangSystem) -> Kind | None:
        """Return the kind to use for a system, None when the cluster has none that can be used now."""
        return next((kind for kind in system.kinds if kind in self.ready), None)

    def is_loading(self, system: GangSystem) -> bool:
        """Return whether more may be known in a moment."""
        return any(kind in self.loading for kind in system.kinds)


class Placement(msgspec.Struct, frozen=True):
    """Nodes that a queue has assigned to the pods of one role."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[JsonObject, ...] = ()


class Gang(msgspec.Struct, frozen=True):
    """What a pod is marked with so that its scheduler knows its gang."""

    system: GangSystem
    group: str
    queue: str = ""
    priority_class: str = ""
    placements: dict[Role, Placement] = {}
