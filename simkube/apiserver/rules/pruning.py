"""Drops the fields of a custom resource that the schema of its definition lacks."""

from __future__ import annotations

from typing import Any

from paddlejob.api.meta import JsonObject


def pruned(schema: JsonObject, value: Any) -> Any:
    """Return a value without unknown fields, the same object if it has none."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        kept = [pruned(items, each) for each in value]
        return value if all(old is new for old, new in zip(value, kept, strict=True)) else kept
    if not isinstance(value, dict):
        return value
    fields, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    known = {}
    for name, each in value.items():
        if name in fields:
            known[name] = pruned(fields[name], each)
        elif isinstance(rest, dict):
            known[name] = pruned(rest, each)
        elif rest or schema.get("x-kubernetes-preserve-unknown-fields"):
            known[name] = each
    is_same = len(known) == len(value) and all(known[name] is value[name] for name in known)
    return value if is_same else known


def pruned_object(schema: JsonObject, body: JsonObject) -> JsonObject:
    """Return an object without unknown fields; metadata has a schema of the server's own."""
    return {**pruned(schema, body), "metadata": body["metadata"]}
