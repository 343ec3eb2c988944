"""Reads with the user's own permissions: what is forbidden leaves a gap, and a line that says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from paddlejob.core.messages import one_line
from paddlejob.kube import errors, responses
from paddlejob.kube.client import Client
from paddlejob.kube.resource import Resource

T = TypeVar("T")

PAGE = 500
MOST = 1000
"""How many objects of a kind are read where nothing else is said."""
LOG_BYTES = 1 << 16
MOST_LOG_BYTES = 1 << 22
"""So much of a log is read for its last lines: one of them may be longer than all others."""
LOG_SECONDS = 10.0


class Reader:
    """Reads objects of one namespace, and of the cluster. Never raises KubeError, except from `pages`."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.unseen: dict[str, None] = {}
        """What could not be read, in order."""

    async def get(self, resource: Resource, name: str, as_type: type[T]) -> T | None:
        """Return an object, None when there is none or it cannot be seen."""
        namespace = self.namespace if resource.namespaced else None
        try:
            return await self.client.get(resource, namespace, name, type=as_type)
        except errors.NotFoundError:
            return None
        except errors.KubeError as error:
            self.miss(error, f"{resource.kind} {name}", f"get on {_full_name(resource)}")
            return None

    async def all(
        self, resource: Resource, as_type: type[T], *, most: int = MOST, **selectors: str
    ) -> tuple[T, ...] | None:
        """Return the objects of a kind, up to so many, None when they cannot be seen."""
        found: list[T] = []
        try:
            async for page in self.pages(resource, as_type, self.namespace, most=most, **selectors):
                found += page
        except errors.NotFoundError:
            return ()
        except errors.KubeError as error:
            self.miss(error, resource.plural, f"list on {_full_name(resource)}")
            return None
        return tuple(found)

    async def pages(
        self, resource: Resource, as_type: type[T], namespace: str | None, *, most: int, **selectors: str
    ) -> AsyncIterator[tuple[T, ...]]:
        """Yield a list page by page, up to so many objects. Raises KubeError."""
        read, token = 0, ""
        while True:
            page = await self.client.list(
                resource,
                namespace if resource.namespaced else None,
                limit=min(PAGE, most),
                continue_token=token,
                type=as_type,
                **selectors,
            )
            yield page.items
            read, token = read + len(page.items), page.metadata.continue_token
            if not token:
                return
            if read >= most:
                self.unseen[f"read only the first {read} {resource.plural}"] = None
                return

    async def log_tail(self, pod: str, **query: str) -> bytes:
        """Return the end of a container's log, empty when it cannot be seen."""
        tail, read = b"", 0
        try:
            opened = self.client.log_stream(
                self.namespace, pod, query=query, idle_timeout_seconds=LOG_SECONDS
            )
            async with opened as stream:
                if stream.status != 200:
                    raise await responses.error_from_stream(stream)
                async for chunk in stream.chunks():
                    tail, read = (tail + chunk)[-LOG_BYTES:], read + len(chunk)
                    if read >= MOST_LOG_BYTES:
                        break
        except errors.KubeError as error:
            self.miss(error, f"the log of {pod}", "get on pods/log")
        return tail

    def miss(self, error: errors.KubeError, what: str, right: str) -> None:
        """Remember a read that failed."""
        why = f"needs {right}" if isinstance(error, errors.ForbiddenError) else one_line(str(error), 200)
        self.unseen[f"cannot see {what}: {why}"] = None


def _full_name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
