"""Data types of gangs: schedulers, their resources, and the ones that a cluster serves."""

from __future__ import annotations

import enum

import msgspec

from paddlejob.api import resources
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import Role
from paddlejob.core.actions import Kind


class Scheduling(enum.StrEnum):
    """The operator's flag `--scheduling`, for jobs that do not choose a scheduler."""

    AS_WRITTEN = ""
    """Only jobs that ask for a gang get one."""
    VOLCANO = "volcano"
    NATIVE = "native"
    AUTO = "auto"
    """Every job gets a gang if the cluster serves any gang scheduler."""


class GangSystem(enum.StrEnum):
    """A gang scheduler; also the value of an annotation of the pods."""

    VOLCANO = "volcano"
    NATIVE = "native"
    KUEUE = "kueue"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of the objects that describe a gang to this scheduler, the preferred one first."""
        return tuple(_RESOURCES[self])


_RESOURCES = {
    GangSystem.VOLCANO: {Kind.POD_GROUP: resources.VOLCANO_POD_GROUPS},
    GangSystem.NATIVE: {
        Kind.POD_GROUP_V1BETA1: resources.POD_GROUPS_V1BETA1,
        Kind.POD_GROUP_V1ALPHA2: resources.POD_GROUPS_V1ALPHA2,
    },
    GangSystem.KUEUE: {
        Kind.WORKLOAD_V1BETA2: resources.WORKLOADS_V1BETA2,
        Kind.WORKLOAD_V1BETA1: resources.WORKLOADS_V1BETA1,
    },
}
GANG_RESOURCES = {kind: resource for kinds in _RESOURCES.values() for kind, resource in kinds.items()}
GROUP_KINDS = tuple(GANG_RESOURCES)

FLAVORS = {
    Kind.WORKLOAD_V1BETA2: resources.FLAVORS_V1BETA2,
    Kind.WORKLOAD_V1BETA1: resources.FLAVORS_V1BETA1,
}
"""Resource of the ResourceFlavors for each kind of Workload."""


class GangApis(msgspec.Struct, frozen=True):
    """Kinds of groups that the cluster is known to serve."""

    ready: frozenset[Kind] = frozenset()
    """Served, and all of their objects are listed."""
    loading: frozenset[Kind] = frozenset()
    """Being discovered or listed."""
    trouble: dict[Kind, str] = {}
    """Served but not accessible, with the reason."""

    def kind_of(self, system: GangSystem) -> Kind | None:
        """Return the kind to use for a system, None if the cluster has none that is ready."""
        return next((kind for kind in system.kinds if kind in self.ready), None)

    def is_loading(self, system: GangSystem) -> bool:
        return any(kind in self.loading for kind in system.kinds)


class Placement(msgspec.Struct, frozen=True):
    """Nodes that a queue has assigned to the pods of one role."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[JsonObject, ...] = ()


class Gang(msgspec.Struct, frozen=True):
    """The gang that a pod is assigned to, for its scheduler."""

    system: GangSystem
    group: str
    queue: str = ""
    priority_class: str = ""
    placements: dict[Role, Placement] = {}
