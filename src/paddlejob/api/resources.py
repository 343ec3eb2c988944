"""The PaddleJob resource and the resources of the supported gang schedulers."""

from __future__ import annotations

from paddlejob.api import names
from paddlejob.api.resource import Resource

PADDLE_JOBS = Resource(names.GROUP, names.VERSION, names.PLURAL, names.KIND)

_VOLCANO, _NATIVE, _KUEUE = "scheduling.volcano.sh", "scheduling.k8s.io", "kueue.x-k8s.io"
VOLCANO_POD_GROUPS = Resource(_VOLCANO, "v1beta1", "podgroups", "PodGroup")
VOLCANO_QUEUES = Resource(_VOLCANO, "v1beta1", "queues", "Queue", namespaced=False)
POD_GROUPS_V1BETA1 = Resource(_NATIVE, "v1beta1", "podgroups", "PodGroup")
POD_GROUPS_V1ALPHA2 = Resource(_NATIVE, "v1alpha2", "podgroups", "PodGroup")
WORKLOADS_V1BETA2 = Resource(_KUEUE, "v1beta2", "workloads", "Workload")
WORKLOADS_V1BETA1 = Resource(_KUEUE, "v1beta1", "workloads", "Workload")
FLAVORS_V1BETA2 = Resource(_KUEUE, "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False)
FLAVORS_V1BETA1 = Resource(_KUEUE, "v1beta1", "resourceflavors", "ResourceFlavor", namespaced=False)
