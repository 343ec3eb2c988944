"""An operator's parts on an in-memory API server, one at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import yaml

from paddlejob.api.v1 import PaddleJob
from paddlejob.kube.client import Client
from paddlejob.kube.events import EventRecorder
from paddlejob.operator.controller import Controller
from paddlejob.operator.resources import PADDLE_JOBS
from paddlejob.operator.settings import OperatorSettings
from paddlejob.testing import virtual_loop
from paddlejob.testing.apiserver.fake_api import ApiServer
from paddlejob.testing.build import JobBuilder

CRD = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "v1" / "crd.yaml").read_text())


class Cluster:
    """A server and a client of it."""

    def __init__(self) -> None:
        self.server = ApiServer()
        self.server.install(CRD)
        self.client = Client(self.server.transport("operator"))
        self.controller: Controller | None = None

    async def submit(self, built: JobBuilder) -> PaddleJob:
        """Create a job and return it as the operator reads it."""
        manifest = {**built.manifest, "metadata": {"name": built.manifest["metadata"]["name"]}}
        manifest["metadata"]["namespace"] = "default"
        self.server.create(PADDLE_JOBS, manifest)
        return await self.client.get(PADDLE_JOBS, "default", manifest["metadata"]["name"], type=PaddleJob)

    async def operate(self, seconds: float, settings: OperatorSettings | None = None) -> None:
        """Run an operator for a while."""
        rng = random.Random(0)
        async with EventRecorder(self.client, "operator", rng=rng, now=virtual_loop.now) as recorder:
            self.controller = Controller(
                self.client, settings or OperatorSettings(), rng=rng, now=virtual_loop.now, recorder=recorder
            )
            tasks = [
                asyncio.create_task(self.controller.watch()),
                asyncio.create_task(self.controller.work()),
            ]
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def status(self, name: str = "demo") -> dict:
        """Return a job's status."""
        stored = self.server.get(PADDLE_JOBS, "default", name)
        return (stored or {}).get("status", {})


def on_a_cluster(act: Callable[[Cluster], Awaitable[None]]) -> None:
    """Play an act under virtual time."""

    async def main() -> None:
        await act(Cluster())

    virtual_loop.run(main())
