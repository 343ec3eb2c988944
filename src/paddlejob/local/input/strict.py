"""Checks a job file as strictly as a cluster: unknown fields and values of the wrong type.

The fields of the job come from its schema. The fields of pod templates come from a table written by
`scripts/pod_schema.py`: {"Container": {"command": "[]string", "env": "[]EnvVar", ...}, ...}.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from paddlejob.api import quantity
from paddlejob.api.crd.schema import job_schema
from paddlejob.api.meta import JsonObject
from paddlejob.api.validation.errors import FieldError, invalid, wrong_kind

_SCALARS: dict[str, tuple[type[Any], ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_TYPE_ERRORS = {
    "string": "must be text; put it in quotes",
    "boolean": "must be true or false",
    "integer": "must be a whole number",
    "number": "must be a number",
}
_ANY: JsonObject = {}


def field_errors(document: JsonObject) -> Iterator[FieldError]:
    """Yield the unknown fields of a PaddleJob, a ConfigMap or a Secret, and values of the wrong type."""
    kind = document.get("kind")
    yield from _errors("", document, _named(kind) if kind in ("ConfigMap", "Secret") else _job())


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the closest known word, or an empty string."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def _errors(path: str, value: Any, schema: JsonObject) -> Iterator[FieldError]:
    if value is None or not schema:
        return
    if "properties" in schema:
        yield from _object_errors(path, value, schema["properties"])
    elif "additionalProperties" in schema:
        if not isinstance(value, dict):
            yield wrong_kind(path, value, dict)
            return
        for key, each in value.items():
            yield from _errors(f"{path}[{key}]", each, _resolved(schema["additionalProperties"]))
    elif "items" in schema:
        yield from _list_errors(path, value, _resolved(schema["items"]))
    elif schema.get("type") == "quantity":
        try:
            quantity.parse(value)
        except ValueError:
            yield invalid(path, value, "must be a quantity such as 2, 500m or 4Gi")
    elif (kind := schema.get("type")) in _SCALARS and not _is(value, kind):
        yield invalid(path, value, _TYPE_ERRORS[kind])


def _list_errors(path: str, value: Any, item: JsonObject) -> Iterator[FieldError]:
    if isinstance(value, str) and item.get("type") == "string":
        yield invalid(path, value, "must be a list, such as [python, train.py]")
    elif not isinstance(value, list):
        yield wrong_kind(path, value, list)
    else:
        for index, each in enumerate(value):
            yield from _errors(f"{path}[{index}]", each, item)


def _object_errors(path: str, value: Any, fields: JsonObject) -> Iterator[FieldError]:
    if not isinstance(value, dict):
        yield wrong_kind(path, value, dict)
        return
    for key, each in value.items():
        here = f"{path}.{key}" if path else str(key)
        if key not in fields:
            yield FieldError(here, f"Unknown field{suggestion(str(key), set(fields) - set(value))}")
        else:
            yield from _errors(here, each, _resolved(fields[key]))


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _SCALARS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _resolved(schema: JsonObject | str) -> JsonObject:
    """Return the schema of a type in the table."""
    if isinstance(schema, dict):
        return schema
    if schema == "any":
        return _ANY
    if schema in _SCALARS or schema == "quantity":
        return {"type": schema}
    if schema.startswith("[]"):
        return {"items": schema.removeprefix("[]")}
    if schema.startswith("map["):
        return {"additionalProperties": schema[4:-1]}
    return _named(schema)


def _named(name: str) -> JsonObject:
    return {"properties": _table()[name]}


@functools.cache
def _table() -> dict[str, JsonObject]:
    path = Path(__file__).with_name("pod_schema.json")
    return msgspec.json.decode(path.read_bytes(), type=dict[str, JsonObject])


@functools.cache
def _job() -> JsonObject:
    schema: JsonObject = job_schema()
    schema["properties"] |= {"metadata": "ObjectMeta", "status": _ANY}
    for role in ("ps", "worker", "heter"):
        schema["properties"]["spec"]["properties"][role]["properties"]["template"] = "PodTemplateSpec"
    return schema
