"""Requests of a simulated kubelet for one pod, repeated until they succeed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from paddlejob.api.meta import JsonObject
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS, Resource
from paddlejob.kubelet import CONFIG_MAP, SECRET, Contents, Source

SECRETS = Resource("", "v1", "secrets", "Secret")
_RESOURCES = {CONFIG_MAP: CONFIG_MAPS, SECRET: SECRETS}
_RETRY_SECONDS = 1.0

T = TypeVar("T")


class PodGoneError(Exception):
    """The pod was deleted, or another pod has its name."""


class PodWriter:
    """Binds, reports and deletes one pod, by its UID; the slots limit concurrent requests."""

    def __init__(self, client: Client, slots: asyncio.Semaphore, pod: JsonObject) -> None:
        self._client = client
        self._slots = slots
        self._namespace: str = pod["metadata"]["namespace"]
        self._name: str = pod["metadata"]["name"]
        self._uid: str = pod["metadata"]["uid"]

    async def bind(self, node: str) -> None:
        """Put the pod on a node.

        Raises PodGoneError.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": self._name, "uid": self._uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }

        async def send() -> None:
            await self._client.create(
                PODS, self._namespace, body, name=self._name, subresource="binding", type=dict
            )

        try:
            await self._persist(send)
        except errors.ConflictError:
            return  # an earlier try went through, only its answer did not come back

    async def write_status(self, status: JsonObject) -> None:
        """Report the pod's status; the UID keeps it from a pod that took over the name.

        Raises PodGoneError.
        """
        body = {"metadata": {"uid": self._uid}, "status": status}

        async def send() -> None:
            await self._client.patch(PODS, self._namespace, self._name, body, subresource="status")

        await self._persist(send, through_conflicts=True)

    async def delete(self, *, grace_seconds: int | None) -> None:
        """Delete the pod, or ask for it when there is grace.

        Raises PodGoneError.
        """

        async def send() -> None:
            await self._client.delete(
                PODS, self._namespace, self._name, uid=self._uid, grace_seconds=grace_seconds
            )

        try:
            await self._persist(send)
        except errors.ConflictError as error:
            raise PodGoneError from error

    async def read(self, source: Source) -> Contents | None:
        """Return the data of a config map or secret, None when there is none."""

        async def send() -> JsonObject | None:
            try:
                return await self._client.get(
                    _RESOURCES[source.kind], self._namespace, source.name, type=dict
                )
            except errors.NotFoundError:
                return None

        found = await self._persist(send)
        if found is None:
            return None
        return {key: value.encode() for key, value in (found.get("data") or {}).items()}

    async def _persist(self, send: Callable[[], Awaitable[T]], *, through_conflicts: bool = False) -> T:
        """Send until there is an answer.

        Raises PodGoneError if the pod does not exist; ConflictError, unless `through_conflicts`.
        """
        while True:
            try:
                async with self._slots:
                    return await send()
            except (errors.NotFoundError, errors.InvalidError) as error:
                raise PodGoneError from error
            except errors.ConflictError:
                if not through_conflicts:
                    raise
            except (errors.TransportError, errors.ServerError, errors.TooManyRequestsError):
                pass
            await asyncio.sleep(_RETRY_SECONDS)
