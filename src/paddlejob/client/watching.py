# ruff: noqa: A002  (`type` is the word for what a caller asks for)
"""Objects while they change, for a reader who asks what is so now rather than what has happened."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from paddlejob.api.meta import HasMeta
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.kube.cache import Cache
from paddlejob.kube.client import Client
from paddlejob.kube.errors import ServerError, TransportError
from paddlejob.kube.informer import Informer
from paddlejob.kube.resource import PODS, Resource
from paddlejob.operator.resources import PADDLE_JOBS

T = TypeVar("T", bound=HasMeta)

LOOK_SECONDS = 1.0
"""How often a reader that waits is woken to look for trouble with the connection."""


class Watching(Generic[T]):
    """The objects of a watch; they are kept current as long as its context is open."""

    def __init__(self, informer: Informer[T], changed: asyncio.Event) -> None:
        self._informer = informer
        self._changed = changed

    @property
    def objects(self) -> Cache[T]:
        """What the API server has, as far as it has been received."""
        return self._informer.cache

    @property
    def trouble(self) -> str:
        """What is wrong with the connection, empty while it is healthy."""
        return self._informer.trouble

    async def next_change(self, timeout_seconds: float = LOOK_SECONDS) -> bool:
        """Wait until anything has changed since the last call; False when nothing has for so long."""
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
    """Watch objects; several watches may set one event. Connections that break are made again.

    Raises KubeError when the first list or watch is refused.
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
                # The informer would try indefinitely; a list tells whether there is any use in that.
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
    """Watch a job and its pods; a change of either is a change of both. Raises KubeError, as `watching`."""
    changed = asyncio.Event()
    by_name = f"metadata.name={name}"
    async with (
        watching(
            client, PADDLE_JOBS, namespace, type=PaddleJob, field_selector=by_name, changed=changed
        ) as jobs,
        watching(client, PODS, namespace, type=Pod, label_selector=pod_selector, changed=changed) as pods,
    ):
        yield jobs, pods
