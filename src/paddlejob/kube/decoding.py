"""Decodes untrusted JSON, including objects that are nested too deeply for msgspec.

The API server accepts JSON with 10,000 levels. msgspec reads as many levels as Python's recursion limit
allows (under 1,000 on Python 3.11); beyond that it raises RecursionError, even for parts that it skips.
"""

from __future__ import annotations

import re
import sys
from typing import Any, TypeVar

import msgspec

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


def without_nulls(value: Any, levels: int = sys.maxsize) -> Any:
    """Return a decoded value without null fields, which the API server treats as absent.

    Anything below this many levels becomes None.
    """
    if not levels:
        return None
    if isinstance(value, dict):
        return {key: without_nulls(item, levels - 1) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item, levels - 1) for item in value]
    return value
