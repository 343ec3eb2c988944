"""The kinds of objects that the operator reads and writes, and how it selects its own."""

from __future__ import annotations

from paddlejob.api import names
from paddlejob.core.actions import Kind
from paddlejob.core.gang.model import FLAVORS, GANG_RESOURCES, QUEUES
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES, Resource

PADDLE_JOBS = Resource(names.GROUP, names.VERSION, names.PLURAL, names.KIND)


VOLCANO_POD_GROUPS = GANG_RESOURCES[Kind.POD_GROUP]
POD_GROUPS_V1ALPHA2 = GANG_RESOURCES[Kind.POD_GROUP_V1ALPHA2]
POD_GROUPS_V1BETA1 = GANG_RESOURCES[Kind.POD_GROUP_V1BETA1]
WORKLOADS_V1BETA1 = GANG_RESOURCES[Kind.WORKLOAD_V1BETA1]
WORKLOADS_V1BETA2 = GANG_RESOURCES[Kind.WORKLOAD_V1BETA2]
VOLCANO_QUEUES = QUEUES
FLAVORS_OF = FLAVORS

RESOURCE_OF = {
    Kind.POD: PODS,
    Kind.SERVICE: SERVICES,
    Kind.CONFIG_MAP: CONFIG_MAPS,
    **GANG_RESOURCES,
}

SELECTORS = {
    PODS: names.LABEL_RESOURCE_TYPE,
    SERVICES: names.LABEL_RESOURCE_TYPE,
    CONFIG_MAPS: names.LABEL_RESOURCE_NAME,
}
"""Only objects with these labels are watched, so that memory grows with the jobs, not with the cluster."""
