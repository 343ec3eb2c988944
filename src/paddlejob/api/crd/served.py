"""Compares the CRD on an API server with the status that the operator writes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from paddlejob.api import names
from paddlejob.api.crd.schema import struct_schema
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJobStatus


def dropped_status_fields(definition: JsonObject) -> tuple[str, ...]:
    """Return the paths of the status fields that an API server with this CRD drops from a write.

    `definition` is a CustomResourceDefinition of apiextensions.k8s.io/v1. A missing object is one path.
    """
    spec = definition["spec"]
    if spec.get("preserveUnknownFields"):
        return ()
    version: JsonObject = next((each for each in spec["versions"] if each["name"] == names.VERSION), {})
    served = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return tuple(_dropped("", _written(), served))


def sample_status() -> JsonObject:
    """Return a status with every field, to test which of them an API server keeps."""
    sample: JsonObject = _sample(_written()["properties"]["status"])
    return sample


def _sample(schema: JsonObject) -> Any:
    match schema["type"]:
        case "object":
            return {name: _sample(each) for name, each in schema["properties"].items()}
        case "array":
            return [_sample(schema["items"])]
        case "integer":
            return 1
        case "boolean":
            return True
        case _:
            return "2026-01-01T00:00:00Z" if schema.get("format") == "date-time" else "sample"


@cache
def _written() -> JsonObject:
    return {"properties": {"status": struct_schema(PaddleJobStatus)}}


def _dropped(path: str, wanted: JsonObject, served: JsonObject) -> Iterator[str]:
    keeps_unknown = served.get("x-kubernetes-preserve-unknown-fields")
    for name, schema in (wanted.get("properties") or {}).items():
        inner, known = f"{path}.{name}".lstrip("."), (served.get("properties") or {}).get(name)
        if known is not None:
            yield from _dropped(inner, schema, known)
        elif not keeps_unknown:
            yield inner
    if "items" in wanted:
        yield from _dropped(f"{path}[]", wanted["items"], served.get("items") or {})
