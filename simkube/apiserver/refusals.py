"""Errors of the API server: its Status objects, with the original text if code or users read it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.kube.errors import ApiError, Status, StatusCause, StatusDetails, api_error
from paddlejob.kube.resource import Resource
from paddlejob.kube.transport import Response


def qualified(resource: Resource) -> str:
    """Return the plural as messages name it: pods, widgets.example.org."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def status_object(error: ApiError) -> JsonObject:
    """Return the Status that the server sends for a refusal."""
    status = error.status
    body: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": status.message,
        "code": status.code,
    }
    if status.reason:
        body["reason"] = status.reason
    if status.details is not None:
        body["details"] = {key: value for key, value in msgspec.to_builtins(status.details).items() if value}
    return body


def response(error: ApiError) -> Response:
    """Return a refusal as the transport carries it."""
    headers = {"content-type": "application/json"}
    if error.retry_after_seconds:
        headers["retry-after"] = str(int(error.retry_after_seconds))
    return Response(error.code, msgspec.json.encode(status_object(error)), headers)


def success(*, code: int = 200, details: JsonObject | None = None) -> JsonObject:
    """Return the Status of a write that has no object to show."""
    body: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": code,
    }
    return body | ({"details": details} if details else {})


def refusal(
    code: int,
    reason: str,
    message: str,
    *,
    name: str = "",
    kind: str = "",
    causes: Sequence[StatusCause] = (),
    retry_after_seconds: float = 0,
) -> ApiError:
    """Return the exception for a Status."""
    details = StatusDetails(
        name=name, kind=kind, causes=tuple(causes), retry_after_seconds=retry_after_seconds
    )
    return api_error(Status(code=code, reason=reason, message=message, details=details))


def bad_request(message: str) -> ApiError:
    """400: the request cannot be read."""
    return refusal(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str, *, causes: Sequence[StatusCause] = ()) -> ApiError:
    """Return 403 of an admission plugin; `why` is the text for users."""
    message = f'{qualified(resource)} "{name}" is forbidden: {why}'
    return refusal(403, "Forbidden", message, name=name, kind=resource.plural, causes=causes)


def not_found(resource: Resource, name: str) -> ApiError:
    """404: there is no object of that name."""
    message = f'{qualified(resource)} "{name}" not found'
    return refusal(404, "NotFound", message, name=name, kind=resource.plural)


def no_such_resource() -> ApiError:
    """404: there is no such kind here."""
    return refusal(404, "NotFound", "the server could not find the requested resource")


def method_not_allowed() -> ApiError:
    """405: the resource has no such verb."""
    return refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def already_exists(resource: Resource, name: str) -> ApiError:
    """409: the name is taken."""
    message = f'{qualified(resource)} "{name}" already exists'
    return refusal(409, "AlreadyExists", message, name=name, kind=resource.plural)


def conflict(resource: Resource, name: str, why: str) -> ApiError:
    """409: the object is not as the request supposes."""
    message = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}'
    return refusal(409, "Conflict", message, name=name, kind=resource.plural)


def modified(resource: Resource, name: str) -> ApiError:
    """409: the version is not the current one."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def expired(message: str) -> ApiError:
    """410: the version is too old."""
    return refusal(410, "Expired", message)


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    """415: the body comes in a form that this resource does not take."""
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        f"{', '.join(accepted)}"
    )
    return refusal(415, "UnsupportedMediaType", message)


def invalid(kind: str, group: str, name: str, causes: Sequence[StatusCause]) -> ApiError:
    """422: the object breaks rules, one cause for each."""
    problems = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    subject = f"{kind}.{group}" if group else kind
    message = f'{subject} "{name}" is invalid: {listed}'
    return refusal(422, "Invalid", message, name=name, kind=kind, causes=causes)


def patch_rejected() -> ApiError:
    """422: a JSON patch does not fit the object."""
    return refusal(422, "Invalid", "the server rejected our request due to an error in our request")


def internal_error(message: str) -> ApiError:
    """500: the server failed."""
    cause = StatusCause(message=message)
    return refusal(500, "InternalError", f"Internal error occurred: {message}", causes=[cause])


def version_too_large(asked: int, current: int) -> ApiError:
    """504: the version does not exist yet."""
    cause = StatusCause("ResourceVersionTooLarge", "Too large resource version")
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return refusal(504, "Timeout", message, causes=[cause], retry_after_seconds=1)


def invalid_value(field: str, value: object, why: str) -> StatusCause:
    """Return the cause for a value that breaks a rule."""
    shown = msgspec.json.encode(value).decode()
    return StatusCause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)


def required(field: str, why: str = "") -> StatusCause:
    """Return the cause for a value that is missing."""
    return StatusCause("FieldValueRequired", f"Required value: {why}" if why else "Required value", field)


def duplicate(field: str, value: object) -> StatusCause:
    """Return the cause for a value that must be unique."""
    shown = msgspec.json.encode(value).decode()
    return StatusCause("FieldValueDuplicate", f"Duplicate value: {shown}", field)


def not_supported(field: str, value: str, supported: Sequence[str]) -> StatusCause:
    """Return the cause for a value that is not among the allowed ones."""
    choices = ", ".join(f'"{choice}"' for choice in supported)
    message = f'Unsupported value: "{value}": supported values: {choices}'
    return StatusCause("FieldValueNotSupported", message, field)


def forbidden_value(field: str, why: str) -> StatusCause:
    """Return the cause for a field that may not be set, or not changed."""
    return StatusCause("FieldValueForbidden", f"Forbidden: {why}", field)
