"""Objects that are nested more deeply than a test's own JSON library could write them."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

import msgspec

from simkube.apiserver.server import SimulatedTransport

DEPTHS = (500, 992, 1100, 9900, 9978, 9984, 9992, 9999)
"""Around the limits of Python 3.11, of Python 3.12 and later, and of the API server."""

_MARK = re.compile(rb'"@deep:(\d+)@"')


def deep(levels: int) -> str:
    """Return a text that a DeepTransport's answers have an object of so many levels for."""
    return f"@deep:{levels}@"


def nested(levels: int, inside: bytes = b'"}]"') -> bytes:
    return b'{"a":[' * (levels // 2) + inside + b"]}" * (levels // 2)


class DeepTransport(SimulatedTransport):
    """A connection to an in-memory server, which itself holds only the marks."""

    async def request(self, method, path, **options):
        response = await super().request(method, path, **options)
        return msgspec.structs.replace(response, body=_deepened(response.body))

    @asynccontextmanager
    async def stream(self, path, **options):
        async with super().stream(path, **options) as stream:
            yield _DeepStream(stream)


class _DeepStream:
    def __init__(self, stream) -> None:
        self._stream = stream
        self.status, self.headers = stream.status, stream.headers

    async def chunks(self):
        async for chunk in self._stream.chunks():
            yield _deepened(chunk)


def _deepened(body: bytes) -> bytes:
    return _MARK.sub(lambda mark: nested(int(mark[1])), body)
