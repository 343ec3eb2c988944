"""Decodes untrusted JSON, including objects that are nested too deeply for msgspec.

The API server accepts JSON with 10,000 levels. msgspec reads as many levels as Python's recursion limit
allows (under 1,000 on Python 3.11); beyond that it raises RecursionError, even for parts that it skips.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Collection
from typing import Any, TypeVar

import msgspec

from paddlejob.kube.errors import ResponseTooLargeError

T = TypeVar("T")

DECODE_ERRORS = (ValueError, RecursionError, OverflowError)
"""All exceptions of decoding; msgspec's errors and UnicodeDecodeError are ValueErrors."""

MAX_DEPTH = 100
"""The maximum depth of an object that is read completely; the deepest field of a pod is at level 15."""

_READABLE_DEPTH = 2 * MAX_DEPTH
"""The depth to which deeper objects are cut: below every view, and recognizable as above MAX_DEPTH."""

_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{}])', re.DOTALL)
"""The next bracket that is not part of a string."""


def decode(decoder: msgspec.json.Decoder[T], encoded: bytes | msgspec.Raw) -> T:
    """Decode JSON, reading parts that are nested too deeply as null.

    An object that was cut this way is still deeper than MAX_DEPTH. Raises one of DECODE_ERRORS.
    """
    try:
        return decoder.decode(encoded)
    except RecursionError:
        return decoder.decode(without_deeper(bytes(encoded), _READABLE_DEPTH))


def is_too_deep(encoded: bytes | msgspec.Raw) -> bool:
    """Return whether an object is nested more deeply than MAX_DEPTH."""
    body = bytes(encoded)
    # A cheap lower bound first. Empty objects, of which `managedFields` has hundreds, add no depth.
    inner = body.count(b"{") - body.count(b"{}") + body.count(b"[") - body.count(b"[]")
    if inner < MAX_DEPTH:
        return False
    return without_deeper(body, MAX_DEPTH) is not body


def without_deeper(body: bytes, levels: int) -> bytes:
    """Return the JSON text with null for every array and object below this many levels.

    Guarantees linear time. Returns the same object if nothing is that deep.
    """
    kept: list[bytes] = []
    depth = start = end = 0
    # Not finditer: after a failed match it would continue inside the string.
    while bracket := _BRACKET.match(body, end):
        end = bracket.end()
        if body[end - 1] in b"[{":
            depth += 1
            if depth == levels + 1:
                kept.append(body[start : end - 1])
        else:
            if depth == levels + 1:
                kept.append(b"null")
                start = end
            depth -= 1
    return b"".join((*kept, body[start:])) if kept else body


def without_nulls(
    value: Any, levels: int = sys.maxsize, string_maps: Collection[str] = (), *, is_string_map: bool = False
) -> Any:
    """Return a decoded value without null fields, which the API server treats as absent.

    In the fields named in `string_maps`, null is an empty string. Anything below `levels` becomes None.
    """
    if not levels:
        return None
    if isinstance(value, list):
        return [without_nulls(item, levels - 1, string_maps) for item in value]
    if not isinstance(value, dict):
        return value
    if is_string_map:
        return {key: "" if item is None else item for key, item in value.items()}
    return {
        key: without_nulls(item, levels - 1, string_maps, is_string_map=key in string_maps)
        for key, item in value.items()
        if item is not None
    }


class LineSplitter:
    """Collects chunks and returns complete lines.

    Guarantees linear time: the chunks of a long line are joined once.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._unfinished: list[bytes] = []
        self._max_bytes = max_bytes
        self._unfinished_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without LF or CRLF, including empty lines.

        Raises ResponseTooLargeError for a line above the maximum.
        """
        completed = []
        first, *others = chunk.split(b"\n")
        self._unfinished.append(first)
        for start_of_next in others:
            completed.append(self._take())
            self._unfinished.append(start_of_next)
        self._unfinished_bytes = len(self._unfinished[-1]) + (0 if others else self._unfinished_bytes)
        if self._max_bytes is not None and self._unfinished_bytes > self._max_bytes:
            raise ResponseTooLargeError(f"the server sent a line of more than {self._max_bytes >> 20} MiB")
        return completed

    def finish(self) -> bytes:
        """Return the rest after the last line end."""
        return self._take()

    def _take(self) -> bytes:
        line = self._unfinished[0] if len(self._unfinished) == 1 else b"".join(self._unfinished)
        self._unfinished.clear()
        # Strip CR only from the joined line: CR and LF can arrive in different chunks.
        return line.removesuffix(b"\r")


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, including a last one without a line end.

    A line that is cut by an error is not yielded; the error propagates.
    """
    splitter = LineSplitter()
    async for chunk in chunks:
        for line in splitter.feed(chunk):
            yield line
    if rest := splitter.finish():
        yield rest
