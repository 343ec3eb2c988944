"""Decodes JSON of unknown origin: what that can raise, and objects that are nested too deeply.

The API server accepts JSON of 10,000 levels. msgspec reads as many levels as Python's recursion limit allows
(under 1,000 on Python 3.11) and raises RecursionError beyond, even for a part that is not decoded.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")

DECODE_ERRORS = (ValueError, RecursionError, OverflowError)
"""All that decoding can raise: msgspec's errors and UnicodeDecodeError are ValueErrors."""

MAX_DEPTH = 100
"""How deeply an object may be nested that is read whole; the deepest field of a pod is at level 15."""

_READABLE_DEPTH = 2 * MAX_DEPTH
"""How much is left of what does not decode: every view that is read, and more than MAX_DEPTH."""

_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{}])', re.DOTALL)
"""The next bracket that is not part of a string."""


def decode(decoder: msgspec.json.Decoder[T], encoded: bytes | msgspec.Raw) -> T:
    """Decode; parts that are nested too deeply for that are read as null.

    What has lost such a part is still nested more deeply than MAX_DEPTH. Raises one of DECODE_ERRORS.
    """
    try:
        return decoder.decode(encoded)
    except RecursionError:
        return decoder.decode(without_deeper(bytes(encoded), _READABLE_DEPTH))


def is_too_deep(encoded: bytes | msgspec.Raw) -> bool:
    """Tell whether an object is nested more deeply than MAX_DEPTH."""
    body = bytes(encoded)
    # Hundreds in `managedFields` are empty, and hold nothing deeper. Of the others there must be that many.
    inner = body.count(b"{") - body.count(b"{}") + body.count(b"[") - body.count(b"[]")
    if inner < MAX_DEPTH:
        return False
    return without_deeper(body, MAX_DEPTH) is not body


def without_deeper(body: bytes, levels: int) -> bytes:
    """Return the JSON text with null for every array and object below so many levels.

    Guarantees time linear in the length; returns the very same text when nothing is that deep.
    """
    kept: list[bytes] = []
    depth = start = end = 0
    # Not finditer: where a match fails, it would look for one inside of the string it failed on.
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
