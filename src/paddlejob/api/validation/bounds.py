"""The bounds that stand beside a field's type, checked: numbers, lengths and words.

The API server enforces the same ones by the CRD, where it knows them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import msgspec.inspect as shape

from paddlejob.api.meta import JsonObject
from paddlejob.api.validation.errors import FieldError, invalid, too_long, too_many, unsupported


def bounds_errors(
    path: str, values: msgspec.Struct, least: Mapping[str, int] | None = None
) -> Iterator[FieldError]:
    """Yield what is out of bounds in a struct, but not in the structs inside it; `least` are other minima."""
    for name, field, bounds in _bounded_fields(type(values)):
        value = getattr(values, name)
        if value is not None and value != "":
            stated = {**bounds, "minimum": least[name]} if least and name in least else bounds
            yield from _errors(f"{path}.{field}", value, stated)


@functools.cache
def _bounded_fields(struct: type) -> tuple[tuple[str, str, JsonObject], ...]:
    info = shape.type_info(struct)
    assert isinstance(info, shape.StructType)
    return tuple(
        (field.name, field.encode_name, field.type.extra_json_schema)
        for field in info.fields
        if isinstance(field.type, shape.Metadata) and field.type.extra_json_schema
    )


def _errors(path: str, value: Any, bounds: JsonObject) -> Iterator[FieldError]:
    match value:
        case bool():
            return
        case int():
            yield from _number_errors(path, value, bounds)
        case str():
            yield from _text_errors(path, value, bounds)
        case tuple() if "maxItems" in bounds:
            if len(value) > bounds["maxItems"]:
                yield too_many(path, len(value), bounds["maxItems"])
            for index, item in enumerate(value[: bounds["maxItems"]]):
                yield from _errors(f"{path}[{index}]", item, bounds["items"])
        case dict() if len(value) > bounds.get("maxProperties", len(value)):
            yield too_many(path, len(value), bounds["maxProperties"])


def _number_errors(path: str, number: int, bounds: JsonObject) -> Iterator[FieldError]:
    least, most = bounds.get("minimum", number), bounds.get("maximum", number)
    if not least <= number <= most:
        allowed = f"between {least} and {most}" if "maximum" in bounds else f"at least {least}"
        yield invalid(path, number, f"must be {allowed}")


def _text_errors(path: str, text: str, bounds: JsonObject) -> Iterator[FieldError]:
    if len(text) > bounds.get("maxLength", len(text)):
        yield too_long(path, bounds["maxLength"])
    if text not in bounds.get("enum", (text,)):
        yield unsupported(path, text, bounds["enum"])
