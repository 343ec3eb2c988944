"""A transport that answers from a script and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import msgspec

from paddlejob.kube.transport import Response


class Request(msgspec.Struct):
    method: str
    url: str
    body: Any
    content_type: str
    at: float


class ScriptedStream:
    def __init__(self, status: int, chunks: list[bytes], headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self._chunks = chunks

    async def chunks(self):
        for chunk in self._chunks:
            yield chunk


class ScriptedTransport:
    """Each answer is a Response or an exception; the last one is given again and again."""

    def __init__(self, *answers: Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.closed = False

    async def request(
        self, method, path, *, query=None, body=None, content_type="application/json", timeout_seconds=30.0
    ):
        self._remember(method, path, query, body, content_type)
        return self._next()

    @asynccontextmanager
    async def stream(self, path, *, query=None, idle_timeout_seconds=None):
        self._remember("GET", path, query, None, "")
        response = self._next()
        yield ScriptedStream(response.status, [response.body], dict(response.headers))

    async def close(self):
        self.closed = True

    def _remember(self, method, path, query, body, content_type):
        url = f"{path}?{urlencode(query)}" if query else path
        at = asyncio.get_running_loop().time()
        self.requests.append(Request(method, url, json.loads(body) if body else None, content_type, at))

    def _next(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def ok(content: Any = None, status: int = 200) -> Response:
    return Response(status, json.dumps({} if content is None else content).encode())


def refusal(code: int, reason: str = "", message: str = "", retry_after: str | None = None) -> Response:
    body = json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()
    return Response(code, body, {} if retry_after is None else {"retry-after": retry_after})
