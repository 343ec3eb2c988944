"""The kinds of objects that the operator reads and writes, and how it finds its own among them."""

from __future__ import annotations

from paddlejob.api import names
from paddlejob.core.actions import Kind
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES, Resource

PADDLE_JOBS = Resource(names.GROUP, names.VERSION, names.PLURAL, names.KIND)

RESOURCE_OF = {Kind.POD: PODS, Kind.SERVICE: SERVICES, Kind.CONFIG_MAP: CONFIG_MAPS}

SELECTORS = {
    PODS: names.LABEL_RESOURCE_TYPE,
    SERVICES: names.LABEL_RESOURCE_TYPE,
    CONFIG_MAPS: names.LABEL_RESOURCE_NAME,
}
"""Only objects with these labels are watched: memory grows with the jobs, not with the cluster."""
