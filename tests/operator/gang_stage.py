"""A stage whose operator is told about scheduling, and whose pods somebody else puts on nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from behaviour import stage as stages
from behaviour.stage import Stage
from paddlejob.core.gang.model import Scheduling
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.events import EventRecorder
from paddlejob.kube.resource import PODS, Resource
from paddlejob.operator.controller import Controller
from paddlejob.operator.settings import OperatorSettings
from paddlejob.testing import virtual_loop
from paddlejob.testing.kubelet.kubelet import Kubelet


class GangStage(Stage):
    """What an act about gangs may look at; `groups` is the kind of object that they are known by."""

    def __init__(self, client: Client, namespace: str, scheduling: str, groups: Resource) -> None:
        super().__init__(client, namespace)
        self.scheduling = Scheduling(scheduling)
        self.groups = groups
        self.kubelet = Kubelet(
            client,
            behaviour=self.fates.decide,
            rng=self.rng,
            namespace=namespace,
            timing=stages.QUICK,
            schedules=False,
        )

    async def _run_operator(self) -> None:
        now = virtual_loop.now
        async with EventRecorder(self.client, "operator", rng=self.rng, now=now) as recorder:
            jobs = msgspec.structs.replace(stages.SETTINGS, scheduling=self.scheduling)
            settings = OperatorSettings(namespace=self.namespace, jobs=jobs)
            controller = Controller(self.client, settings, rng=self.rng, now=now, recorder=recorder)
            async with asyncio.TaskGroup() as group:
                group.create_task(controller.watch())
                group.create_task(controller.work())

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

    async def says(self, text: str) -> None:
        """Wait until the job's message has a text."""

        async def it_does() -> bool:
            return text in (await self.status()).get("message", "")

        await self.until(it_does, f"the job says {text!r}")
