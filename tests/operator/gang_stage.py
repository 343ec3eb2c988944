"""A stage whose pods somebody else than the kubelet puts on nodes, as gangs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from behaviour.stage import Stage
from paddlejob.api.resources import VOLCANO_POD_GROUPS
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS, Resource
from simkube.volcano import Volcano


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


class VolcanoStage(GangStage):
    """A stage with a simulated Volcano."""

    def __init__(self, client: Client, namespace: str, scheduling: str, *, status_subresource: bool) -> None:
        super().__init__(client, namespace, scheduling, VOLCANO_POD_GROUPS)
        self.volcano = Volcano(
            client,
            capacity={"cpu": "8", "memory": "32Gi"},
            session_seconds=0.1,
            status_subresource=status_subresource,
        )

    async def play(self, act: Callable[[Any], Awaitable[None]]) -> None:
        volcano = asyncio.create_task(self.volcano.run())
        try:
            await super().play(act)
        finally:
            volcano.cancel()
            await asyncio.wait({volcano})
