"""One thing that is wrong with a job, told to its author."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

DNS_LABEL_MAX = 63
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""What a hostname, a pod of ours and a container may be called (RFC 1123 label)."""

_KINDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "text"}


class FieldError(msgspec.Struct, frozen=True, gc=False):
    """A field and what is wrong with it; the two together are a sentence that ends with the way out."""

    field: str
    """Path such as `spec.worker.template.spec.containers[0].image`."""
    message: str
    """The rest of the sentence, such as `is missing; name the image that the container runs`."""

    def __str__(self) -> str:
        return f"{self.field} {self.message}"


def describe(value: Any) -> str:
    """Name a value in a sentence: scalars as they are written in YAML, the rest by its kind."""
    match value:
        case dict():
            return "an object"
        case list() | tuple():
            return "a list"
        case None:
            return "empty"
        case _:
            return shortened(json.dumps(value, ensure_ascii=False, default=str))


def is_dns_label(text: str) -> bool:
    """Tell whether a text may be a hostname without dots."""
    return len(text) <= DNS_LABEL_MAX and DNS_LABEL.fullmatch(text) is not None


def kind_errors(
    path: str, value: Any, kind: type[Collection[Any]], *, may_be_empty: bool = True, most: int | None = None
) -> Iterator[FieldError]:
    """Yield that a value is of another kind of JSON than its field, or has more than `most` entries."""
    if not isinstance(value, kind):
        if value is not None or not may_be_empty:
            yield wrong_kind(path, value, kind)
    elif most is not None and len(value) > most:
        yield FieldError(path, f"has {len(value)} entries, but at most {most} are allowed; remove some")


def entry(path: str, key: str) -> str:
    """Return the path of an entry of a map, whose key may be anything."""
    return f"{path}[{shortened(key)}]"


def wrong_kind(path: str, value: Any, kind: type) -> FieldError:
    """Say that a value is of another kind of JSON than its field."""
    return FieldError(path, f"is {describe(value)}, but must be {_KINDS[kind]}; check the indentation")


def shortened(text: str, limit: int = 80) -> str:
    """Return a text, or the beginning of a long one and its last character."""
    return text if len(text) <= limit else f"{text[: limit - 4]}..." + text[-1]
