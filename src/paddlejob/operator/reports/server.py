"""The port for reports. Only the leader opens it, so a report reaches the leader or is refused."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from paddlejob.operator.ports import server
from paddlejob.operator.ports.http import Request, Response, Route
from paddlejob.operator.ports.server import Limits
from paddlejob.operator.reports.tokens import PodIdentity

LIMITS = Limits(connections=256, per_source=32)
"""All recorders together send 50 reports a second, so that few connections are needed at a time. A connection
with TLS takes up to 0.3 MB before its client has authenticated itself."""
PATH = "/v1/report"


class Answer(msgspec.Struct, frozen=True):
    """A status, and a JSON object as the body."""

    status: int
    body: dict[str, Any]


Admission = Callable[[str, str], Coroutine[Any, Any, PodIdentity | Answer]]
"""Returns the pod that a token belongs to, or the refusal. Its arguments: token and source address."""
Handler = Callable[[PodIdentity, bytes, Mapping[str, str]], Coroutine[Any, Any, Answer]]
"""Its arguments: the sender, the body, and the variable parts of the path."""


@asynccontextmanager
async def serve(
    address: str, context: ssl.SSLContext, admit: Admission, routes: Mapping[str, Handler]
) -> AsyncIterator[int]:
    """Serve `host:port` and yield the port. The callbacks run on the loop of the caller. Raises OSError."""
    loop = asyncio.get_running_loop()

    async def respond(handle: Handler, request: Request) -> Response:
        if not request.token:
            return _response(Answer(401, {"message": "a bearer token is required"}))
        sender = await server.call(loop, admit(request.token, request.source))
        if isinstance(sender, Answer):
            return _response(sender)
        answer = await server.call(loop, handle(sender, await request.body(), request.place))
        return _response(answer, keep=answer.status in (200, 429))

    handlers = [Route("POST", path, partial(respond, handle)) for path, handle in routes.items()]
    async with server.serve(address, handlers, LIMITS, context=context) as port:
        yield port


def _response(answer: Answer, *, keep: bool = False) -> Response:
    return Response(answer.status, msgspec.json.encode(answer.body), "application/json", keep)
