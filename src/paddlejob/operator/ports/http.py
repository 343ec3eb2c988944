"""A minimal HTTP/1.1: requests with a bounded head and a Content-Length."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus

import msgspec

MAX_HEAD_BYTES = 1 << 15
"""Twice the maximum size of a token."""
MAX_BODY_BYTES = 1 << 16
BODY_SECONDS = 5.0
END_OF_HEAD = b"\r\n\r\n"
_REQUEST_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_PLACEHOLDER = re.compile(r"\\\{(\w+)\\\}")


class Response(msgspec.Struct, frozen=True):
    """A status, a body, and whether the client may keep its connection."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    keep: bool = False
    """Set only for authenticated clients."""

    def head(self, *, keep: bool) -> bytes:
        """Return the status line and the headers."""
        return (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
            f"Content-Type: {self.content_type}\r\nContent-Length: {len(self.body)}\r\n"
            f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
        ).encode()


class RequestError(Exception):
    """A request that cannot be served, with its HTTP status."""

    def __init__(self, status: HTTPStatus, message: str = "") -> None:
        super().__init__(message or status.phrase)
        self.status = status

    def response(self) -> Response:
        return Response(self.status, f"{self}\n".encode())


class Request:
    """A request whose head has been read. The handler checks the token, then reads the body."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader, source: str) -> None:
        """Parse the head. Raises RequestError."""
        first, *lines = head.removesuffix(END_OF_HEAD).decode("latin-1").split("\r\n")
        parsed, headers = _REQUEST_LINE.fullmatch(first), [_HEADER.fullmatch(line) for line in lines]
        if parsed is None or not all(headers):
            raise RequestError(HTTPStatus.BAD_REQUEST)
        self.method, self.path = parsed[1], parsed[2].partition("?")[0]
        self.source = source
        self.placeholders: Mapping[str, str] = {}
        """Values of the placeholders in the path."""
        values = {header[1].lower(): header[2] for header in headers if header}
        names = [header[1].lower() for header in headers if header]
        if "transfer-encoding" in values:
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "send the body with a Content-Length")
        length = values.get("content-length", "0")
        if names.count("content-length") > 1 or not re.fullmatch("[0-9]{1,12}", length):
            raise RequestError(HTTPStatus.BAD_REQUEST, "Content-Length must be one number")
        scheme, _, token = values.get("authorization", "").partition(" ")
        self.token = token.strip() if scheme.lower() == "bearer" else ""
        self.keep = parsed[3] == "1" and "close" not in values.get("connection", "").lower()
        self.unread = int(length)
        self.on_authenticated: Callable[[], bool] = lambda: True
        """Called by the handler when the client is authenticated. Returns whether the response may wait:
        not if the connection still counts among those of unauthenticated clients."""
        self._reader = reader

    async def body(self) -> bytes:
        """Return the body. Raises RequestError if it is too large or does not arrive in time."""
        if self.unread > MAX_BODY_BYTES:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is limited to {MAX_BODY_BYTES} bytes"
            )
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await self._reader.readexactly(self.unread)
        except TimeoutError:
            raise RequestError(HTTPStatus.REQUEST_TIMEOUT) from None
        self.unread = 0
        return body

    async def discard_body(self) -> None:
        """Read and discard the body; some clients read the response only after sending all of it."""
        left = min(self.unread, 2 * MAX_BODY_BYTES)
        while left > 0 and (part := await self._reader.read(left)):
            left -= len(part)


Handler = Callable[[Request], Awaitable[Response]]


class Endpoint(msgspec.Struct, frozen=True):
    """A handler for a method and a path, which may have placeholders such as {name}."""

    method: str
    path: str
    handler: Handler


class Router:
    """Finds the handler of a request."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = [
            (re.compile(_PLACEHOLDER.sub(r"(?P<\1>[^/]+)", re.escape(each.path))), each) for each in endpoints
        ]

    async def respond(self, request: Request) -> Response:
        """Return the response of the matching endpoint. Raises RequestError if there is none."""
        for pattern, endpoint in self._endpoints:
            found = pattern.fullmatch(request.path)
            if found is not None and endpoint.method != request.method:
                raise RequestError(HTTPStatus.METHOD_NOT_ALLOWED)
            if found is not None:
                request.placeholders = found.groupdict()
                return await endpoint.handler(request)
        raise RequestError(HTTPStatus.NOT_FOUND)
