"""A simulated kubelet on a simulated API server, and the history of its pods."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from paddlejob.api.meta import JsonObject
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS
from simkube.apiserver.server import ApiServer
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.outcomes import (
    Behaviour,
    Exit,
    Outcome,
)
from tests.simulator.behaviour import pod


class World:
    """A server, a kubelet and the history of the pods."""

    def __init__(self, server: ApiServer, kubelet: Kubelet) -> None:
        self.server = server
        self.kubelet = kubelet
        self.seen: list[JsonObject] = []
        server.store.observers.append(lambda change: self.seen.append(change.record.body))

    def create(self, name: str = "a", **spec: Any) -> None:
        self.server.create(PODS, pod(name, **{"restartPolicy": "Never", **spec}))

    def pod(self, name: str = "a") -> JsonObject:
        found = self.server.get(PODS, "default", name)
        assert found is not None, f"there is no pod {name}"
        return found

    def status(self, name: str = "a") -> JsonObject:
        return self.pod(name)["status"]

    def container(self, name: str = "a", index: int = 0) -> JsonObject:
        return self.status(name)["containerStatuses"][index]

    def conditions(self, name: str = "a") -> dict[str, str]:
        return {condition["type"]: condition["status"] for condition in self.status(name)["conditions"]}

    def phases(self, name: str = "a") -> list[str]:
        """Return the phases that a pod went through."""
        phases = [body["status"]["phase"] for body in self.seen if body["metadata"]["name"] == name]
        return [phase for phase, before in zip(phases, ["", *phases], strict=False) if phase != before]

    def exists(self, name: str = "a") -> bool:
        return self.server.get(PODS, "default", name) is not None


@asynccontextmanager
async def running(
    outcome: Outcome | Behaviour | None = None, *, seed: int = 1, **options: Any
) -> AsyncIterator[World]:
    """Run a kubelet; `outcome` is the outcome of every container, or a function."""
    outcome = outcome or Exit()
    server = ApiServer(rng=random.Random(seed))
    behaviour = outcome if callable(outcome) else lambda *_: outcome
    kubelet = Kubelet(
        Client(server.transport("kubelet")), behaviour=behaviour, rng=random.Random(seed), **options
    )
    task = asyncio.create_task(kubelet.run())
    yield World(server, kubelet)
    assert not task.done(), task.exception()
    task.cancel()


def with_config(name: str = "config") -> list[JsonObject]:
    return [
        {
            "name": "main",
            "image": "i",
            "envFrom": [{"configMapRef": {"name": name}}],
            "env": [
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "ENDPOINT", "value": "$(POD_IP):$(key)"},
            ],
        }
    ]
