"""A simulated kube-scheduler for gangs: binds the pods of a PodGroup once as many are there as it needs.

As in Kubernetes 1.36, a pod that names a PodGroup which does not exist is not scheduled, and neither are
fewer pods than `minCount`; those that have ended or are being deleted do not count.
"""

from __future__ import annotations

from collections import defaultdict

from paddlejob.api.meta import JsonObject
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS, Resource
from simkube.binder import Binder


class NativeGangs:
    """Schedules the pods that name a PodGroup, and no others; there is room for all of them."""

    def __init__(self, client: Client, pod_groups: Resource, *, nodes: tuple[str, ...]) -> None:
        self._client = client
        self._pod_groups = pod_groups
        self._binder = Binder(client, nodes)

    async def session(self) -> None:
        """Look at everything once.

        Raises KubeError.
        """
        members: dict[tuple[str, str], list[JsonObject]] = defaultdict(list)
        listed = (await self._client.list(PODS, type=dict)).items
        self._binder.look(listed)
        for pod in listed:
            group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
            has_ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            if group and not has_ended and "deletionTimestamp" not in pod["metadata"]:
                members[pod["metadata"]["namespace"], group].append(pod)
        for group in (await self._client.list(self._pod_groups, type=dict)).items:
            metadata = group["metadata"]
            pods = members[metadata["namespace"], metadata["name"]]
            if len(pods) >= group["spec"]["schedulingPolicy"]["gang"]["minCount"]:
                for pod in pods:
                    if not pod["spec"].get("nodeName"):
                        await self._binder.bind(pod)
