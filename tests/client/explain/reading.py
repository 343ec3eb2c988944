"""An in-memory cluster as a person with few rights sees it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from paddlejob.kube.client import Client
from paddlejob.kube.transport import Response
from paddlejob.testing.apiserver.fake_api import ApiServer
from tests.operator.gang_cluster import PADDLE_JOB_CRD

FORBIDDEN = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}'


class Restricted:
    """A transport that may not read some collections, by the end of their path."""

    def __init__(self, server: ApiServer, *forbidden: str) -> None:
        self._transport = server.transport("user")
        self._forbidden = forbidden
        self.requests: list[tuple[str, Mapping[str, str]]] = []

    async def request(self, method: str, path: str, *, query: Any = None, **options: Any) -> Response:
        self.requests.append((path, query or {}))
        if path.endswith(self._forbidden):
            return Response(403, FORBIDDEN)
        return await self._transport.request(method, path, query=query, **options)

    def stream(self, path: str, **options: Any) -> Any:
        return self._transport.stream(path, **options)

    async def close(self) -> None:
        await self._transport.close()


def server() -> ApiServer:
    """An API server that knows PaddleJobs."""
    made = ApiServer(rng=random.Random(0))
    made.install(PADDLE_JOB_CRD)
    return made


def client(of: ApiServer, *forbidden: str) -> Client:
    """A client that may not read what lies at paths with these ends."""
    return Client(Restricted(of, *forbidden), rng=random.Random(0))
