"""Behaviours of an API server, as a table that runs on the simulated server and on a real one.

Each entry is a coroutine function that takes an `Api` with a separate namespace and asserts its responses.
`BEHAVIOURS` maps the description of each behaviour to its function.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.kube.decoding import split_lines
from paddlejob.kube.resource import PODS, Resource
from paddlejob.kube.transport import Transport

WIDGETS = Resource("behaviour.example.org", "v1", "widgets", "Widget")
WIDGET_DEFINITION: JsonObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.behaviour.example.org"},
    "spec": {
        "group": "behaviour.example.org",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer", "minimum": 0},
                                    "size": {"type": "string", "default": "m"},
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}

PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class Answer(msgspec.Struct, frozen=True):
    """A status code and the JSON that came with it."""

    code: int
    body: Any

    @property
    def reason(self) -> str:
        return self.body.get("reason", "")

    @property
    def message(self) -> str:
        return self.body.get("message", "")

    @property
    def metadata(self) -> JsonObject:
        return self.body["metadata"]

    @property
    def version(self) -> int:
        return int(self.metadata["resourceVersion"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def fields(self) -> set[str]:
        return {cause.get("field", "") for cause in self.body["details"].get("causes", ())}


class Api:
    """A transport and a namespace of one's own."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.transport = transport
        self.namespace = namespace

    async def send(
        self,
        method: str,
        resource: Resource,
        name: str | None = None,
        body: Any = None,
        *,
        sub: str | None = None,
        patch: str = "merge",
        query: dict[str, str] | None = None,
        namespace: str | None = None,
    ) -> Answer:
        space = (namespace or self.namespace) if resource.namespaced else None
        response = await self.transport.request(
            method,
            resource.path(space, name, sub),
            query=query,
            body=None if body is None else msgspec.json.encode(body),
            content_type=PATCHES[patch] if method == "PATCH" else "application/json",
        )
        return Answer(response.status, msgspec.json.decode(response.body))

    async def get(self, resource: Resource, name: str, sub: str | None = None) -> Answer:
        return await self.send("GET", resource, name, sub=sub)

    async def list(self, resource: Resource, **query: str) -> Answer:
        return await self.send("GET", resource, query=query)

    async def create(self, resource: Resource, body: JsonObject, **query: str) -> Answer:
        return await self.send("POST", resource, None, body, query=query)

    async def replace(
        self, resource: Resource, name: str, body: JsonObject, sub: str | None = None
    ) -> Answer:
        return await self.send("PUT", resource, name, body, sub=sub)

    async def patch(
        self, resource: Resource, name: str, body: Any, sub: str | None = None, kind: str = "merge"
    ) -> Answer:
        return await self.send("PATCH", resource, name, body, sub=sub, patch=kind)

    async def delete(self, resource: Resource, name: str, **options: Any) -> Answer:
        return await self.send("DELETE", resource, name, options)

    async def bind(self, name: str, node: str = "node-1") -> Answer:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": node},
        }
        return await self.send("POST", PODS, name, body, sub="binding")

    @asynccontextmanager
    async def watch(self, resource: Resource, **query: str) -> AsyncIterator[Events]:
        stream = self.transport.stream(
            resource.path(self.namespace), query={"watch": "true", "timeoutSeconds": "20", **query}
        )
        async with stream as opened:
            yield Events(opened.status, split_lines(opened.chunks()))

    async def gone(self, resource: Resource, name: str, *, seconds: float = 30.0) -> None:
        """Wait until an object is deleted."""
        async with asyncio.timeout(seconds):
            while (await self.get(resource, name)).code != 404:
                await asyncio.sleep(0.05)


class Events:
    """The events of a watch."""

    def __init__(self, status: int, lines: AsyncIterator[bytes]) -> None:
        self.status = status
        self._lines = lines

    async def take(self, count: int) -> list[tuple[str, str, JsonObject]]:
        """Return the next events as (type, name, object)."""
        async with asyncio.timeout(15):
            return [await self.next() for _ in range(count)]

    async def next(self) -> tuple[str, str, JsonObject]:
        event = msgspec.json.decode(await anext(self._lines))
        metadata = event["object"].get("metadata", {})
        return event["type"], metadata.get("name", ""), event["object"]

    async def shown(self, count: int) -> list[str]:
        """Return the next events as `TYPE name`."""
        return [f"{kind} {name}" for kind, name, _ in await self.take(count)]

    async def rest(self) -> list[bytes]:
        """Return all events until the stream ends."""
        return [line async for line in self._lines]


Behaviour = Callable[[Api], Awaitable[None]]
BEHAVIOURS: dict[str, Behaviour] = {}
NEEDS_CONTROLLERS: set[str] = set()
"""Behaviours that need a garbage collector."""


def behaviour(sentence: str, *, controllers: bool = False) -> Callable[[Behaviour], Behaviour]:
    """Enter a coroutine function into the table."""

    def enter(function: Behaviour) -> Behaviour:
        assert sentence not in BEHAVIOURS
        BEHAVIOURS[sentence] = function
        if controllers:
            NEEDS_CONTROLLERS.add(sentence)
        return function

    return enter


def pod(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> JsonObject:
    """Return a pod of one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [{"name": "main", "image": "image"}], **spec},
    }


def widget(name: str, spec: JsonObject | None = None, **metadata: Any) -> JsonObject:
    """Return a custom object."""
    return {
        "apiVersion": "behaviour.example.org/v1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": {"replicas": 2} if spec is None else spec,
    }


def config_map(name: str, owner: JsonObject | None = None, **metadata: Any) -> JsonObject:
    """Return a config map, owned by an object when one is given."""
    if owner is not None:
        metadata["ownerReferences"] = [owner_reference(owner)]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {"key": "value"},
    }


def owner_reference(owner: JsonObject, **changes: Any) -> JsonObject:
    """Return a reference to an object as its dependents carry it."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **changes,
    }
