"""Containers on a cluster: the environment as the kubelet resolves it, and the measured resource usage."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from paddlejob import kubelet
from paddlejob.api import quantity
from paddlejob.api.meta import JsonObject, ObjectMeta, View
from paddlejob.client import ranks
from paddlejob.client.errors import ClientError
from paddlejob.client.job import Usage
from paddlejob.client.streams.processes import pod_environment
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SECRETS, Resource
from paddlejob.kubelet import CONFIG_MAP, Contents, Source, Sources

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob

POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")


class _ContainerMetrics(View, frozen=True):
    usage: dict[str, str] = {}


class PodMetrics(View, frozen=True):
    """A measurement of the metrics server."""

    metadata: ObjectMeta
    containers: tuple[_ContainerMetrics, ...] = ()

    @property
    def usage(self) -> Usage:
        """The sum of the containers, in thousandths of a core and in Mi."""
        used = quantity.total(quantity.parse_all(each.usage) for each in self.containers)
        cores, memory = (used.get(name, quantity.ZERO).amount for name in ("cpu", "memory"))
        return Usage(f"{int(cores * 1000)}m", f"{int(memory) >> 20}Mi")


async def rank_environment(job: ClusterJob, rank: str) -> dict[str, str]:
    """Return the environment of the training container of a rank, from its pod, ConfigMaps and Secrets.

    If a pod has several processes, the environment of one of them is read in the pod. Raises ClientError.
    """
    pod = ranks.select_one(job.state, await job.pods(), rank)
    process = ranks.place_of(job.state, rank).process
    if process is None:
        container = ranks.training_container(job.state, pod)
        return await environment(job.client, job.namespace, pod.metadata.name, container)
    return await pod_environment(job, pod, process)


async def environment(client: Client, namespace: str, pod: str, container: str) -> dict[str, str]:
    """Return the variables of a container from its manifest, without the variables of its image.

    Raises ClientError if a ConfigMap does not exist yet.
    """
    body = await client.get(PODS, namespace, pod)
    containers: list[JsonObject] = body["spec"]["containers"]
    manifest = next((each for each in containers if each["name"] == container), containers[0])
    read = {source: await _contents(client, namespace, source) for source in kubelet.references(manifest)}
    try:
        return kubelet.resolve(manifest, Sources(body, read.get))
    except kubelet.ConfigError as error:
        raise ClientError(f"{pod} has no environment yet: {error}") from error


async def _contents(client: Client, namespace: str, source: Source) -> Contents | None:
    resource = CONFIG_MAPS if source.kind == CONFIG_MAP else SECRETS
    try:
        body = await client.get(resource, namespace, source.name)
    except errors.NotFoundError:
        return None
    plain: dict[str, str] = body.get("data") or {}
    if resource is SECRETS:
        return {key: base64.b64decode(value) for key, value in plain.items()}
    return {key: value.encode() for key, value in plain.items()}
