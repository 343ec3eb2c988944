"""An informer on an in-memory API server that answers as badly as a test likes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from paddlejob.api.meta import ObjectMeta, View
from paddlejob.kube.cache import Cache
from paddlejob.kube.client import Client
from paddlejob.kube.errors import TransportError
from paddlejob.kube.informer import Informer
from paddlejob.kube.resource import CONFIG_MAPS, Resource
from paddlejob.kube.transport import Response
from simkube import virtual_loop
from simkube.apiserver.rules.kinds import custom_resource
from simkube.apiserver.server import ApiServer, SimulatedTransport


class Settings(View, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


class Sized(View, frozen=True):
    metadata: ObjectMeta
    spec: SizedSpec


class SizedSpec(View, frozen=True):
    size: int


SIZED = Resource("example.org", "v1", "sizeds", "Sized")


class UnrulyTransport(SimulatedTransport):
    """Opens streams as the test says: each entry of `streams` spoils one of them."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, "informer", None)
        self.streams: list[Response | Exception | Callable[..., object]] = []
        self.pages: list[Response | Exception] = []
        self.queries: list[dict[str, str]] = []

    async def request(self, method, path, *, query=None, **options):
        self.queries.append(dict(query or {}))
        if self.pages:
            answer = self.pages.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return await super().request(method, path, query=query, **options)

    @asynccontextmanager
    async def stream(self, path, *, query=None, idle_timeout_seconds=None):
        self.queries.append(dict(query or {}))
        spoiled = self.streams.pop(0) if self.streams else None
        if isinstance(spoiled, Exception):
            raise spoiled
        if isinstance(spoiled, Response):
            yield Scripted(spoiled.status, [spoiled.body], spoiled.headers)
            return
        async with super().stream(path, query=query, idle_timeout_seconds=idle_timeout_seconds) as stream:
            yield stream if spoiled is None else Scripted(200, spoiled(stream), {})


class Scripted:
    def __init__(self, status: int, chunks: object, headers: object) -> None:
        self.status, self.headers = status, headers
        self._chunks = chunks

    async def chunks(self):
        if isinstance(self._chunks, list):
            for chunk in self._chunks:
                yield chunk
        else:
            async for chunk in self._chunks:
                yield chunk


async def silent(stream):
    await asyncio.Event().wait()
    yield b""


def cut_after(size: int):
    """Give so many bytes, then break the connection."""

    async def chunks(stream):
        async for chunk in stream.chunks():
            yield chunk[:size]
            raise TransportError("connection reset by peer")

    return chunks


async def byte_by_byte(stream):
    async for chunk in stream.chunks():
        for number in range(len(chunk)):
            yield chunk[number : number + 1]


async def with_crlf_and_empty_lines(stream):
    async for chunk in stream.chunks():
        yield chunk.replace(b"\n", b"\r\n\r\n")


def refusal(code: int, message: str = "no", **headers: str) -> Response:
    body = {"kind": "Status", "code": code, "message": message}
    return Response(code, msgspec.json.encode(body), headers)


def error_event(code: int, message: str = "no") -> Response:
    status = {"kind": "Status", "code": code, "message": message}
    return Response(200, msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n")


class Scene:
    """A server, an informer of its config maps, and what the informer told."""

    def __init__(self, **server_options: object) -> None:
        self.server = ApiServer(**server_options)
        self.server.register(custom_resource(SIZED))
        self.transport = UnrulyTransport(self.server)
        self.told: list[tuple[str | None, str | None, bool]] = []
        self.cache: Cache[Settings] = Cache()
        self.informer = self.make(CONFIG_MAPS, Settings, self.cache)

    def make(self, resource, kind, cache, **options) -> Informer:
        return Informer(
            Client(self.transport),
            resource,
            type=kind,
            cache=cache,
            rng=random.Random(0),
            on_change=self.changed,
            **options,
        )

    def changed(self, old, new, *, initial: bool) -> None:
        self.told.append((old and old.metadata.name, new and new.metadata.name, initial))

    def put(self, name: str, **data: str) -> None:
        metadata = {"name": name, "namespace": "default", "labels": {"size": data.get("size", "")}}
        if self.server.get(CONFIG_MAPS, "default", name) is None:
            self.server.create(CONFIG_MAPS, {"metadata": metadata, "data": data})
        else:
            self.server.patch(CONFIG_MAPS, "default", name, {"metadata": metadata, "data": data})

    def delete(self, name: str) -> None:
        self.server.delete(CONFIG_MAPS, "default", name)

    def cached(self) -> dict[str, dict[str, str]]:
        return {found.metadata.name: found.data for found in self.cache}

    async def settled(self) -> None:
        """Wait until the cache has reached the server."""
        async with asyncio.timeout(3600):
            await self.cache.wait_for_version(str(self.server.version))

    @asynccontextmanager
    async def running(self, informer: Informer | None = None):
        task = asyncio.create_task((informer or self.informer).run())
        try:
            yield
            assert not task.done(), "the informer ended by itself"
        finally:
            task.cancel()


def play(scenario: Callable[[Scene], Awaitable[None]], **server_options: object) -> None:
    async def main() -> None:
        await scenario(Scene(**server_options))

    virtual_loop.run(main(), max_virtual_seconds=2 * 86400)


def seconds() -> float:
    return asyncio.get_running_loop().time()


def sized(name: str, size: object) -> dict[str, object]:
    return {**head(SIZED, name), "spec": {"size": size}}


def head(resource: Resource, name: str) -> dict[str, object]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
