"""An in-memory cluster as a person with few rights sees it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from paddlejob.kube.client import Client
from paddlejob.kube.transport import Response
from simkube.apiserver.server import ApiServer
from tests.support.definitions import PADDLE_JOB_CRD

FORBIDDEN = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}'
BROKEN = b'{"kind":"Status","code":500,"reason":"InternalError","message":"it hurts"}'
RUNNING = {"name": "paddle", "ready": True, "state": {"running": {}}}


class Refused:
    """A stream that the server does not open."""

    status, headers = 403, dict[str, str]()

    async def chunks(self) -> AsyncIterator[bytes]:
        yield FORBIDDEN


class Restricted:
    """A transport that gets no answer, or a wrong one, where a path has one of some ends.

    `served` are answers that another server gives behind this one, by path.
    """

    def __init__(
        self,
        server: ApiServer,
        *forbidden: str,
        broken: tuple[str, ...] = (),
        served: Mapping[str, bytes] | None = None,
    ) -> None:
        self._transport = server.transport("user")
        self._forbidden = forbidden
        self._broken = broken
        self._served = served or {}
        self.requests: list[tuple[str, Mapping[str, str]]] = []

    async def request(self, method: str, path: str, *, query: Any = None, **options: Any) -> Response:
        self.requests.append((path, query or {}))
        if path.endswith(self._forbidden):
            return Response(403, FORBIDDEN)
        if path.endswith(self._broken):
            return Response(500, BROKEN)
        if path in self._served:
            return Response(200, self._served[path])
        return await self._transport.request(method, path, query=query, **options)

    @asynccontextmanager
    async def stream(self, path: str, **options: Any) -> AsyncIterator[Any]:
        if path.endswith(self._forbidden):
            yield Refused()
            return
        async with self._transport.stream(path, **options) as stream:
            yield stream

    async def close(self) -> None:
        await self._transport.close()


def server() -> ApiServer:
    """An API server that knows PaddleJobs."""
    made = ApiServer(rng=random.Random(0))
    made.install(PADDLE_JOB_CRD)
    return made


def on(transport: Restricted) -> Client:
    """A client on a transport."""
    return Client(transport, rng=random.Random(0))


def client(of: ApiServer, *forbidden: str, broken: tuple[str, ...] = ()) -> Client:
    """A client that may not read what is at paths with these ends."""
    return on(Restricted(of, *forbidden, broken=broken))
