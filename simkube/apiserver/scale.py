"""The scale subresource of custom resources."""

from __future__ import annotations

from typing import Any

from paddlejob.api.meta import JsonObject
from simkube.apiserver import refusals
from simkube.apiserver.store import Record


def scale_object(record: Record, *, strict: bool = True) -> JsonObject:
    """Return an object's autoscaling/v1 Scale.

    Raises ApiError (500) when the object has no replicas at the declared path, unless not strict.
    """
    paths = record.type.scale
    assert paths is not None, "the router lets scale requests through for kinds that have it only"
    replicas = _found(record.body, paths.spec_replicas)
    if replicas is None and strict:
        message = f'the spec replicas field "{paths.spec_replicas}" does not exist'
        raise refusals.internal_error(message)
    metadata = record.metadata
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: JsonObject = {"replicas": _found(record.body, paths.status_replicas) or 0}
    selector = _found(record.body, paths.selector) if paths.selector else None
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: metadata[field] for field in shown if field in metadata},
        "spec": {"replicas": replicas} if replicas is not None else {},
        "status": status,
    }


def with_replicas(record: Record, scale: JsonObject) -> JsonObject:
    """Return an object's body with the replicas that a Scale asks for."""
    paths = record.type.scale
    assert paths is not None
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        causes = [refusals.invalid_value(paths.spec_replicas, replicas, "should be a non-negative integer")]
        resource = record.type.resource
        raise refusals.invalid(resource.kind, resource.group, record.name, causes)
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version and version != record.metadata["resourceVersion"]:
        raise refusals.modified(record.type.resource, record.name)
    body: JsonObject = _placed(record.body, _parts(paths.spec_replicas), replicas)
    return body


def _parts(path: str) -> list[str]:
    return path.strip(".").split(".")


def _found(body: JsonObject, path: str) -> Any:
    value: Any = body
    for part in _parts(path):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _placed(body: JsonObject, parts: list[str], value: object) -> JsonObject:
    head, *rest = parts
    return {**body, head: _placed(body.get(head) or {}, rest, value) if rest else value}
