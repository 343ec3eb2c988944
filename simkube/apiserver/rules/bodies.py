"""From the bytes of a write to the object that it leads to: decoding, parts, preconditions, validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddlejob.api.meta import JsonObject
from paddlejob.kube.decoding import without_nulls
from simkube.apiserver import refusals
from simkube.apiserver.request import Request
from simkube.apiserver.rules import patch, rules
from simkube.apiserver.rules.kinds import ResourceType
from simkube.apiserver.store import Record

SERVER_OWNED = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
NEVER_STORED = ("managedFields", "selfLink", "resourceVersion")

_PATCHES: dict[str, Callable[[Any, Any], Any]] = {
    "application/json-patch+json": patch.json_patch,
    "application/merge-patch+json": patch.merge,
    "application/strategic-merge-patch+json": patch.strategic,
}


def is_released(metadata: JsonObject) -> bool:
    """Return whether an object that is being deleted can be removed."""
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def body_of(request: Request) -> JsonObject:
    """Return the object in a request, without apiVersion and kind, its metadata safe to change."""
    body = request.decoded()
    if not isinstance(body, dict):
        raise refusals.bad_request(f"an object is needed, not {type(body).__name__}")
    if request.body is not None and b"null" in request.body:
        body = without_nulls(body)
    return without_head(request.kind, request, body)


def without_head(kind: ResourceType, request: Request, body: JsonObject) -> JsonObject:
    """Return a body without apiVersion and kind, checked against the URL."""
    resource = kind.resource
    body = dict(body)
    api_version, name = body.pop("apiVersion", None), body.pop("kind", None)
    if kind.custom and not name:
        raise refusals.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing"
        )
    if (api_version or resource.api_version) != resource.api_version or (
        name or resource.kind
    ) != resource.kind:
        raise refusals.bad_request(
            f'{name} in version "{api_version}" cannot be handled as a {resource.kind}: '
            f'no kind "{name}" is registered for version "{api_version}"'
        )
    metadata = body["metadata"] = dict(body.get("metadata") or {})
    if metadata.get("namespace", request.namespace) != request.namespace:
        raise refusals.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if request.namespace:
        metadata["namespace"] = request.namespace
    if request.name and metadata.get("name", request.name) != request.name:
        raise refusals.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({request.name})"
        )
    return body


def patch_function(kind: ResourceType, content_type: str) -> Callable[[Any, Any], Any]:
    """Return the function for a patch of a media type.

    Raises ApiError (415) for a type that this kind does not take.
    """
    media_type = content_type.partition(";")[0].strip()
    if media_type not in _PATCHES or (kind.custom and "strategic" in media_type):
        accepted = [name for name in _PATCHES if not (kind.custom and "strategic" in name)]
        raise refusals.unsupported_media_type(accepted)
    return _PATCHES[media_type]


def patch_of(request: Request) -> Any:
    """Return the patch in a request.

    Raises ApiError (400) when it is none.
    """
    patch = request.decoded()
    wanted = list if "json-patch" in request.content_type else dict
    if not isinstance(patch, wanted):
        raise refusals.bad_request(f"error decoding patch: a {wanted.__name__} is needed")
    return patch


def check_fields(request: Request, body: JsonObject) -> None:
    """Raise ApiError (400) for unknown fields, if the request asks for strict validation."""
    kind = request.kind
    if request.query.get("fieldValidation") != "Strict" or kind.unknown_fields is None:
        return
    unknown = kind.unknown_fields(kind.with_head(body))
    if unknown:
        name = kind.resource.kind
        raise refusals.bad_request(
            f'{name} in version "{kind.resource.version}" cannot be handled as a {name}: '
            f"strict decoding error: {', '.join(unknown)}"
        )


def check_replaceable(kind: ResourceType, current: Record, metadata: JsonObject) -> None:
    """Compare the body of a replace with the stored object."""
    resource, name = kind.resource, current.name
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    if uid and uid != current.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current.uid}"
        raise refusals.conflict(resource, name, f"StorageError: invalid object, {why}")
    if not version and not kind.unconditional_update:
        cause = refusals.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise refusals.invalid(resource.plural, resource.group, name, [cause])
    if version and version != current.metadata["resourceVersion"]:
        raise refusals.modified(resource, name)


def combined(kind: ResourceType, subresource: str, previous: JsonObject, proposed: JsonObject) -> JsonObject:
    """Return the object that a write leads to: each subresource can only change its own part."""
    metadata = {key: value for key, value in proposed["metadata"].items() if key not in NEVER_STORED}
    for field in (*SERVER_OWNED[1:3], "resourceVersion"):
        if field in previous["metadata"]:
            metadata[field] = previous["metadata"][field]
    for field in ("name", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if field in previous["metadata"]:
            metadata.setdefault(field, previous["metadata"][field])
    if subresource == "status":
        return _with_new_status(kind, previous, proposed, metadata)
    body = {**proposed, "metadata": metadata}
    if kind.status:
        body.pop("status", None)
        if "status" in previous:
            body["status"] = previous["status"]
    return body


def _with_new_status(
    kind: ResourceType, previous: JsonObject, proposed: JsonObject, metadata: JsonObject
) -> JsonObject:
    body = dict(previous)
    body.pop("status", None)
    if "status" in proposed:
        body["status"] = proposed["status"]
    if not kind.custom:
        # Built-in kinds let a status write change metadata such as labels, but not the owners.
        metadata.pop("ownerReferences", None)
        if "ownerReferences" in previous["metadata"]:
            metadata["ownerReferences"] = previous["metadata"]["ownerReferences"]
        body["metadata"] = metadata
    return body


def content(kind: ResourceType, body: JsonObject) -> JsonObject:
    """Return the part of an object whose changes increase its generation."""
    apart = ("metadata", "status") if kind.status else ("metadata",)
    return {key: value for key, value in body.items() if key not in apart}


def check(
    kind: ResourceType, body: JsonObject, previous: JsonObject | None, *, of_status: bool = False
) -> None:
    """Raise ApiError (422) when an object breaks a rule."""
    metadata = body["metadata"]
    causes = list(kind.name_causes(metadata.get("name", ""))) if previous is None else []
    causes += rules.metadata_causes(
        metadata, previous["metadata"] if previous is not None else None, custom=kind.custom
    )
    if kind.validate is not None and not (of_status and not kind.custom):
        causes += kind.validate(body, previous)
    if causes:
        raise refusals.invalid(kind.resource.kind, kind.resource.group, metadata.get("name", ""), causes)
