"""A stage whose pods somebody else than the kubelet puts on nodes, as gangs."""

from __future__ import annotations

from typing import Any

from behaviour.stage import Stage
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS, Resource


class GangStage(Stage):
    """What an act about gangs may look at; `groups` is the kind of object that they are known by."""

    def __init__(self, client: Client, namespace: str, scheduling: str, groups: Resource) -> None:
        super().__init__(client, namespace, scheduling=scheduling, binds_pods=False)
        self.groups = groups

    async def group(self, name: str = "demo") -> dict[str, Any] | None:
        """Return the gang's object, None when there is none."""
        try:
            return await self.client.get(self.groups, self.namespace, name)
        except errors.NotFoundError:
            return None

    async def bound(self) -> list[str]:
        """Return the names of the pods that have a node."""
        listed = await self.client.list(PODS, self.namespace)
        return [pod["metadata"]["name"] for pod in listed.items if pod["spec"].get("nodeName")]
