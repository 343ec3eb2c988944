# ruff: noqa: A002  (`type` is the natural name of the parameter)
"""Watches objects for readers of their current state."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from paddlejob.api.meta import HasMeta
from paddlejob.api.pod import Pod
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJob
from paddlejob.kube.cache import Cache
from paddlejob.kube.client import Client
from paddlejob.kube.errors import ServerError, TransportError
from paddlejob.kube.informer import Informer
from paddlejob.kube.resource import PODS, Resource

T = TypeVar("T", bound=HasMeta)

LOOK_SECONDS = 1.0
"""How often a waiting reader checks the connection."""


class Watching(Generic[T]):
    """The objects of a watch, which are current while its context is open."""

    def __init__(self, informer: Informer[T], changed: asyncio.Event) -> None:
        self._informer = informer
        self._changed = changed

    @property
    def objects(self) -> Cache[T]:
        """The objects as last received."""
        return self._informer.cache

    @property
    def trouble(self) -> str:
        """The problem with the connection; empty if there is none."""
        return self._informer.trouble

    async def next_change(self, timeout_seconds: float = LOOK_SECONDS) -> bool:
        """Wait for a change since the last call; return False after the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True


@contextlib.asynccontextmanager
async def watching(
    client: Client,
    resource: Resource,
    namespace: str | None,
    *,
    type: type[T],
    label_selector: str = "",
    field_selector: str = "",
    changed: asyncio.Event | None = None,
) -> AsyncIterator[Watching[T]]:
    """Watch objects; several watches can share an event. Broken connections are opened again.

    Raises KubeError if the first list or watch is rejected.
    """
    event = changed or asyncio.Event()

    def on_change(old: T | None, new: T | None, *, initial: bool) -> None:
        del old, new, initial
        event.set()

    informer = Informer(
        client,
        resource,
        type=type,
        cache=Cache[T](),
        rng=random.Random(),  # noqa: S311  (spreads retries, guards nothing)
        namespace=namespace,
        label_selector=label_selector,
        field_selector=field_selector,
        on_change=on_change,
    )
    task = asyncio.create_task(informer.run())
    try:
        while not informer.synced.is_set():
            if informer.refusal:
                raise informer.refusal
            if informer.last_error:
                # The informer retries forever; a list raises permanent errors.
                with contextlib.suppress(ServerError, TransportError):
                    await client.list(resource, namespace, label_selector=label_selector, limit=1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS / 4):
                    await informer.synced.wait()
        yield Watching(informer, event)
    finally:
        task.cancel()
        await asyncio.wait({task})


@contextlib.asynccontextmanager
async def watching_job(
    client: Client, namespace: str, name: str, *, pod_selector: str
) -> AsyncIterator[tuple[Watching[PaddleJob], Watching[Pod]]]:
    """Watch a job and its pods; a change of one wakes readers of both. Raises KubeError, as `watching`."""
    changed = asyncio.Event()
    by_name = f"metadata.name={name}"
    async with (
        watching(
            client, PADDLE_JOBS, namespace, type=PaddleJob, field_selector=by_name, changed=changed
        ) as jobs,
        watching(client, PODS, namespace, type=Pod, label_selector=pod_selector, changed=changed) as pods,
    ):
        yield jobs, pods
