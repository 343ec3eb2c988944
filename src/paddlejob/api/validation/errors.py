"""Field errors in the API server's format: path, kind of error, value, detail."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

DNS_LABEL_MAX = 63
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""Valid names of hosts, containers and our pods (RFC 1123 labels)."""

_KINDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "text"}


class FieldError(msgspec.Struct, frozen=True, gc=False):
    """One error in a job."""

    field: str
    """Path such as `spec.worker.template.spec.containers[0].image`."""
    message: str
    """The rest, such as `Required value: name the image to run`."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def join(errors: Iterable[FieldError]) -> str:
    """Format errors like the API server: several in brackets, a single one without."""
    texts = [str(error) for error in errors]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, f"Invalid value: {describe(value)}: {detail}")


def required(path: str, detail: str) -> FieldError:
    return FieldError(path, f"Required value: {detail}")


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(path, f"Forbidden: {detail}")


def duplicate(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, f"Duplicate value: {describe(value)}: {detail}")


def unsupported(path: str, value: Any, known: Iterable[str]) -> FieldError:
    supported = ", ".join(f'"{each}"' for each in known)
    return FieldError(path, f"Unsupported value: {describe(value)}: supported values: {supported}")


def too_long(path: str, limit: int) -> FieldError:
    return FieldError(path, f"Too long: may not be more than {limit} characters")


def too_many(path: str, count: int, limit: int) -> FieldError:
    return FieldError(path, f"Too many: {count}: must have at most {limit} items")


def wrong_kind(path: str, value: Any, kind: type) -> FieldError:
    return invalid(path, value, f"must be {_KINDS[kind]}; check the indentation")


def kind_errors(
    path: str, value: Any, kind: type[Collection[Any]], *, may_be_empty: bool = True, limit: int | None = None
) -> Iterator[FieldError]:
    """Yield an error if a value has the wrong JSON type or more than `limit` entries."""
    if not isinstance(value, kind):
        if value is not None or not may_be_empty:
            yield wrong_kind(path, value, kind)
    elif limit is not None and len(value) > limit:
        yield too_many(path, len(value), limit)


def entry(path: str, key: str) -> str:
    """Return the path of a map entry; the key may be any text."""
    return f"{path}[{shorten(key)}]"


def describe(value: Any) -> str:
    """Format a value for an error: scalars as JSON, other values by type."""
    match value:
        case dict():
            return "object"
        case list() | tuple():
            return "list"
        case _:
            return shorten(json.dumps(value, ensure_ascii=False, default=str))


def is_dns_label(text: str) -> bool:
    return len(text) <= DNS_LABEL_MAX and DNS_LABEL.fullmatch(text) is not None


def shorten(text: str, limit: int = 80) -> str:
    """Cut a long text in the middle, keeping its last character."""
    return text if len(text) <= limit else f"{text[: limit - 4]}..." + text[-1]
