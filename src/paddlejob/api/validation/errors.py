"""Field errors as the API server words them: path, kind of mistake, value, detail."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

DNS_LABEL_MAX = 63
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""What a hostname, a pod of ours and a container may be called (RFC 1123 label)."""

_KINDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "text"}


class FieldError(msgspec.Struct, frozen=True, gc=False):
    """One mistake in a job."""

    field: str
    """Path such as `spec.worker.template.spec.containers[0].image`."""
    message: str
    """The rest, such as `Required value: name the image to run`."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def join(errors: Iterable[FieldError]) -> str:
    """Return one error as it is, several in brackets, as the API server lists them."""
    texts = [str(error) for error in errors]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """Say why a value cannot be what it is."""
    return FieldError(path, f"Invalid value: {describe(value)}: {detail}")


def required(path: str, detail: str) -> FieldError:
    """Say that a value is missing."""
    return FieldError(path, f"Required value: {detail}")


def forbidden(path: str, detail: str) -> FieldError:
    """Say that a field must not be there."""
    return FieldError(path, f"Forbidden: {detail}")


def duplicate(path: str, value: Any, detail: str) -> FieldError:
    """Say that a value is there twice."""
    return FieldError(path, f"Duplicate value: {describe(value)}: {detail}")


def unsupported(path: str, value: Any, known: Iterable[str]) -> FieldError:
    """Say that a value is none of a few."""
    supported = ", ".join(f'"{each}"' for each in known)
    return FieldError(path, f"Unsupported value: {describe(value)}: supported values: {supported}")


def too_long(path: str, most: int) -> FieldError:
    """Say that a text is too long."""
    return FieldError(path, f"Too long: may not be more than {most} characters")


def too_many(path: str, count: int, most: int) -> FieldError:
    """Say that a list or map has too many entries."""
    return FieldError(path, f"Too many: {count}: must have at most {most} items")


def wrong_kind(path: str, value: Any, kind: type) -> FieldError:
    """Say that a value is of another kind of JSON than its field."""
    return invalid(path, value, f"must be {_KINDS[kind]}; check the indentation")


def kind_errors(
    path: str, value: Any, kind: type[Collection[Any]], *, may_be_empty: bool = True, most: int | None = None
) -> Iterator[FieldError]:
    """Yield that a value is of another kind of JSON than its field, or has more than `most` entries."""
    if not isinstance(value, kind):
        if value is not None or not may_be_empty:
            yield wrong_kind(path, value, kind)
    elif most is not None and len(value) > most:
        yield too_many(path, len(value), most)


def entry(path: str, key: str) -> str:
    """Return the path of an entry of a map, whose key may be anything."""
    return f"{path}[{shortened(key)}]"


def describe(value: Any) -> str:
    """Return a value as it stands in an error: scalars as JSON, the rest by its kind."""
    match value:
        case dict():
            return "object"
        case list() | tuple():
            return "list"
        case _:
            return shortened(json.dumps(value, ensure_ascii=False, default=str))


def is_dns_label(text: str) -> bool:
    """Tell whether a text may be a hostname without dots."""
    return len(text) <= DNS_LABEL_MAX and DNS_LABEL.fullmatch(text) is not None


def shortened(text: str, limit: int = 80) -> str:
    """Return a text, or the beginning of a long one and its last character."""
    return text if len(text) <= limit else f"{text[: limit - 4]}..." + text[-1]
