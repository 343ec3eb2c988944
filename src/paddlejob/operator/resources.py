"""The kinds of objects that the operator reads and writes, and how it selects its own."""

from __future__ import annotations

from paddlejob.api import names
from paddlejob.core.actions import Kind
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES, Resource

PADDLE_JOBS = Resource(names.GROUP, names.VERSION, names.PLURAL, names.KIND)

VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
VOLCANO_QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
POD_GROUPS_V1ALPHA2 = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
POD_GROUPS_V1BETA1 = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
WORKLOADS_V1BETA1 = Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload")
WORKLOADS_V1BETA2 = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
FLAVORS_OF = {
    Kind.WORKLOAD_V1BETA1: Resource(
        "kueue.x-k8s.io", "v1beta1", "resourceflavors", "ResourceFlavor", namespaced=False
    ),
    Kind.WORKLOAD_V1BETA2: Resource(
        "kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False
    ),
}
"""The resource flavors that belong to a kind of workload."""

RESOURCE_OF = {
    Kind.POD: PODS,
    Kind.SERVICE: SERVICES,
    Kind.CONFIG_MAP: CONFIG_MAPS,
    Kind.POD_GROUP: VOLCANO_POD_GROUPS,
    Kind.POD_GROUP_V1ALPHA2: POD_GROUPS_V1ALPHA2,
    Kind.POD_GROUP_V1BETA1: POD_GROUPS_V1BETA1,
    Kind.WORKLOAD_V1BETA1: WORKLOADS_V1BETA1,
    Kind.WORKLOAD_V1BETA2: WORKLOADS_V1BETA2,
}

SELECTORS = {
    PODS: names.LABEL_RESOURCE_TYPE,
    SERVICES: names.LABEL_RESOURCE_TYPE,
    CONFIG_MAPS: names.LABEL_RESOURCE_NAME,
}
"""Only objects with these labels are watched, so that memory grows with the jobs, not with the cluster."""
