"""HTTP/1.1 as bytes, without any I/O: requests are written, answers are read as they arrive."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Iterable

import msgspec

_HEAD_LIMIT = 256 * 1024
"""More than any API server sends: warnings about a manifest are the longest headers there are."""
_LINE_LIMIT = 4096
_WITHOUT_BODY = frozenset({204, 304})
_GZIP = zlib.MAX_WBITS | 16


class HttpError(Exception):
    """The bytes are not what HTTP allows at that place."""


class Head(msgspec.Struct, frozen=True):
    """How an answer begins."""

    status: int
    reason: str
    headers: dict[str, str]
    """Names in lower case; the values of a repeated one are joined by commas."""
    persistent: bool
    """Whether the connection may be used again after the body."""


class _Expecting(enum.Enum):
    HEAD = enum.auto()
    BODY = enum.auto()
    """A known number of bytes."""
    CHUNK_SIZE = enum.auto()
    CHUNK = enum.auto()
    CHUNK_END = enum.auto()
    TRAILER = enum.auto()
    CLOSE = enum.auto()
    """The body ends with the connection."""


def header_lines(headers: Iterable[tuple[str, str]]) -> str:
    """Return headers as a request carries them.

    Raises HttpError for a value that would be read as something else.
    """
    pairs = list(headers)
    for name, value in pairs:
        if not value.isprintable():
            raise HttpError(f"the value of {name} has a line break or another control character in it")
    return "".join(f"{name}: {value}\r\n" for name, value in pairs)


def request_bytes(method: str, target: str, headers: str, body: bytes | None = None) -> bytes:
    """Return a whole request; `headers` are lines as `header_lines` makes them.

    Raises HttpError for a target that does not fit into a request's first line.
    """
    if " " in target or not target.isascii() or not target.isprintable():
        raise HttpError(
            f"{target!r} cannot be asked for; quote what is not a letter, a digit or one of -._~/"
        )
    length = f"Content-Length: {len(body)}\r\n" if body is not None else ""
    try:
        head = f"{method} {target} HTTP/1.1\r\n{headers}{length}\r\n".encode("latin-1")
    except UnicodeEncodeError as error:
        raise HttpError(f"{error.object[error.start]!r} cannot stand in a header") from None
    return head + body if body else head


class AnswerReader:
    """Reads one answer off the bytes of a connection.

    Guarantees time linear in the bytes fed, and that nothing of the body is held back.
    """

    def __init__(self, *, tunnel: bool = False) -> None:
        """Expect an answer; after a successful one to CONNECT (`tunnel`) other bytes than HTTP follow."""
        self.head: Head | None = None
        self.done = False
        """Whether the answer is complete."""
        self.exceeded = False
        """Whether bytes came after the answer that nobody asked for."""
        self._tunnel = tunnel
        self._expecting = _Expecting.HEAD
        self._rest = b""
        """Bytes of a head or a line that is not complete."""
        self._missing = 0
        """How much of the body, or of the chunk, has not arrived."""
        self._inflate: zlib._Decompress | None = None

    @property
    def leaves_connection(self) -> bool:
        """Whether the connection may carry another request after this answer."""
        return self.done and not self.exceeded and self.head is not None and self.head.persistent

    @property
    def begun(self) -> bool:
        """Whether anything has arrived."""
        return self.head is not None or bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the parts of the body in them, unpacked.

        Raises HttpError when they are not HTTP.
        """
        data = self._rest + data if self._rest else data
        self._rest = b""
        position, parts = 0, list[bytes]()
        while position < len(data) and not self.done:
            after = self._take(data, position, parts)
            if after is None:
                self._rest = data[position:]
                break
            position = after
        self.exceeded = self.done and position < len(data)
        return parts if self._inflate is None else self._unpacked(parts, self._inflate)

    def close(self) -> None:
        """Take the end of the connection.

        Raises HttpError when the answer is not complete.
        """
        if self._expecting is _Expecting.CLOSE:
            self._end()
        if not self.done or (self._inflate is not None and not self._inflate.eof):
            raise HttpError("it ended in the middle of an answer")

    def _take(self, data: bytes, position: int, parts: list[bytes]) -> int | None:
        """Take one element from a position on; return the position after it, None when it is cut."""
        match self._expecting:
            case _Expecting.CHUNK_SIZE:
                return self._take_chunk(data, position, parts)
            case _Expecting.CHUNK | _Expecting.BODY:
                return self._take_body(data, position, parts)
            case _Expecting.CHUNK_END:
                return self._take_chunk_end(data, position)
            case _Expecting.HEAD:
                return self._take_head(data, position)
            case _Expecting.TRAILER:
                return self._take_trailer(data, position)
            case _Expecting.CLOSE:
                parts.append(data[position:])
                return len(data)

    def _take_head(self, data: bytes, position: int) -> int | None:
        end = data.find(b"\r\n\r\n", position)
        if end < 0:
            if len(data) - position > _HEAD_LIMIT:
                raise HttpError(f"the head of an answer is longer than {_HEAD_LIMIT} bytes")
            if not b"HTTP/1.".startswith(data[position : position + 7]):
                raise _not_http(data[position:])
            return None
        head = read_head(data[position:end])
        if head.status == 101:
            raise HttpError("it switches to another protocol that nobody asked for")
        if head.status >= 200:
            self._expect_body(head)
        return end + 4

    def _expect_body(self, head: Head) -> None:
        self.head = head
        coding = head.headers.get("transfer-encoding", "").lower()
        length = head.headers.get("content-length")
        if head.headers.get("content-encoding", "").lower() == "gzip":
            self._inflate = zlib.decompressobj(_GZIP)
        if head.status in _WITHOUT_BODY or (self._tunnel and head.status < 300):
            self._inflate = None
            self._end()
        elif coding == "chunked":
            self._expecting = _Expecting.CHUNK_SIZE
        elif coding:
            raise HttpError(f"the body comes as {coding!r}, and only 'chunked' is known")
        elif length is None:
            self._expecting = _Expecting.CLOSE
        else:
            self._missing = _number(length, 10)
            self._expecting = _Expecting.BODY
            if not self._missing:
                self._inflate = None
                self._end()

    def _take_body(self, data: bytes, position: int, parts: list[bytes]) -> int:
        part = data[position : position + self._missing]
        parts.append(part)
        self._missing -= len(part)
        if not self._missing:
            if self._expecting is _Expecting.CHUNK:
                self._expecting = _Expecting.CHUNK_END
            else:
                self._end()
        return position + len(part)

    def _take_chunk(self, data: bytes, position: int, parts: list[bytes]) -> int | None:
        """Take the size of a chunk, and the chunk as well where it is all there, as most are."""
        line_end = _line_end(data, position)
        if line_end is None:
            return None
        size, _, _ = data[position:line_end].partition(b";")
        begin, length = line_end + 2, _number(size.decode("latin-1").strip(), 16)
        end = begin + length
        if length and data[end : end + 2] == b"\r\n":
            parts.append(data[begin:end])
            return end + 2
        self._missing = length
        self._expecting = _Expecting.CHUNK if length else _Expecting.TRAILER
        return begin

    def _take_chunk_end(self, data: bytes, position: int) -> int | None:
        end = data[position : position + 2]
        if not b"\r\n".startswith(end):
            raise HttpError("a chunk is longer than it said")
        if len(end) < 2:
            return None
        self._expecting = _Expecting.CHUNK_SIZE
        return position + 2

    def _take_trailer(self, data: bytes, position: int) -> int | None:
        end = _line_end(data, position)
        if end is None:
            return None
        if end == position:
            self._end()
        return end + 2

    def _end(self) -> None:
        self.done = True

    def _unpacked(self, parts: list[bytes], inflate: zlib._Decompress) -> list[bytes]:
        try:
            unpacked = [inflate.decompress(part) for part in parts]
        except zlib.error as error:
            raise HttpError(f"the body is not gzip: {error}") from None
        if self.done and not inflate.eof:
            raise HttpError("the gzip of a body is cut")
        return [part for part in unpacked if part]


def read_head(block: bytes) -> Head:
    """Return the first line and the headers of an answer.

    Raises HttpError when it is none.
    """
    first, *lines = block.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status, _, reason = rest.partition(" ")
    if not version.startswith("HTTP/1.") or len(status) != 3:
        raise _not_http(block)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError(f"{line[:60]!r} is no header")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    closing = "close" in headers.get("connection", "").lower()
    framed_twice = "transfer-encoding" in headers and "content-length" in headers
    persistent = version == "HTTP/1.1" and not closing and not framed_twice
    return Head(_number(status, 10), reason, headers, persistent)


def _line_end(data: bytes, position: int) -> int | None:
    end = data.find(b"\r\n", position, position + _LINE_LIMIT)
    if end >= 0:
        return end
    if len(data) - position >= _LINE_LIMIT:
        raise HttpError(f"a line between the chunks is longer than {_LINE_LIMIT} bytes")
    return None


def _number(text: str, base: int) -> int:
    """Return a number without sign; Python's `int` takes more than HTTP does."""
    if not text.isascii() or not text.isalnum():
        raise HttpError(f"{text[:20]!r} is no number")
    try:
        return int(text, base)
    except ValueError:
        raise HttpError(f"{text[:20]!r} is no number") from None


def _not_http(data: bytes) -> HttpError:
    return HttpError(f"the answer is no HTTP but begins with {data[:40]!r}")
