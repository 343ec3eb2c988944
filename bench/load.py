"""Load on an API server: a fixed number of concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS
from simkube.build import JobBuilder

T = TypeVar("T")

IN_FLIGHT = 50


async def side_by_side(
    items: Iterable[T], request: Callable[[T], Awaitable[None]], in_flight: int = IN_FLIGHT
) -> None:
    """Send one request for each item."""
    waiting = iter(items)

    async def lane() -> None:
        for item in waiting:
            await request(item)

    await asyncio.gather(*(lane() for _ in range(in_flight)))


def submission(built: JobBuilder) -> JsonObject:
    """Return a job as its author writes it."""
    manifest = built.manifest
    return {**manifest, "metadata": {"name": manifest["metadata"]["name"]}}


async def create_job(client: Client, built: JobBuilder) -> None:
    """Submit a job under its own name, in its own namespace."""
    await client.create(PADDLE_JOBS, built.manifest["metadata"]["namespace"], submission(built))


async def create_pod(client: Client, name: str, labels: dict[str, str] | None = None) -> None:
    """Create a pod without an owner."""
    spec = {"containers": [{"name": "paddle", "image": "paddle:test"}]}
    body = {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}
    await client.create(PODS, "default", body)
