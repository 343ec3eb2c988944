"""Errors of the Kubernetes client.

KubeError
├── ConfigError              the kubeconfig or the in-cluster identity cannot be used
├── TransportError           no response: connection refused, reset, TLS, timeout
│   ├── TransportTimeoutError
│   ├── ResponseTooLargeError
│   ├── UpgradeRefusedError  the server refused to open a WebSocket
│   └── CredentialsError     the request was not sent: no token or certificate is available
├── NotLeaderError           the request was not sent: this process is not, or no longer, the leader
├── UndecodableError         the response does not decode as the requested type
└── ApiError                 the server responded with a Status (code, reason, message, causes)
    ├── BadRequestError      400  for example a body with unknown fields
    ├── UnauthorizedError    401
    ├── ForbiddenError       403  RBAC, quota or an admission plugin
    ├── NotFoundError        404
    ├── ConflictError        409  the resourceVersion or UID precondition failed
    │   └── AlreadyExistsError    409 with reason AlreadyExists
    ├── GoneError            410  the resourceVersion is too old to watch from
    ├── InvalidError         422
    ├── TooManyRequestsError 429
    └── ServerError          5xx
"""

from __future__ import annotations

import msgspec


class KubeError(Exception):
    """Base class of the errors of this package."""


class ConfigError(KubeError):
    """The server address or the credentials cannot be used; the message contains the fix."""


class TransportError(KubeError):
    """There was no response; a write may or may not have taken effect."""


class TransportTimeoutError(TransportError):
    """There was no response in time."""


class ResponseTooLargeError(TransportError):
    """The response exceeds the transport's limit; a list can be read in smaller pages."""


class UpgradeRefusedError(TransportError):
    """The server answered a WebSocket request with a status other than 101."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class CredentialsError(TransportError):
    """The request was not sent because no credentials are available."""


class NotLeaderError(KubeError):
    """The write was not sent because this process does not hold the lease."""


class UndecodableError(KubeError):
    """The response does not decode as the requested type. A write took effect."""


class StatusCause(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: float = 0


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The body of an error response."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class ApiError(KubeError):
    """The API server refused the request."""

    def __init__(self, status: Status, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(status.message or status.reason or f"the API server responded with {status.code}")
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    @property
    def code(self) -> int:
        return self.status.code

    @property
    def reason(self) -> str:
        """The reason in the Status, such as AlreadyExists or Expired."""
        return self.status.reason


class BadRequestError(ApiError):
    """The body does not match the schema."""


class UnauthorizedError(ApiError):
    """The credentials are missing, wrong or expired."""


class ForbiddenError(ApiError):
    """RBAC, a quota or an admission plugin denied the request."""


class NotFoundError(ApiError):
    """The object or the resource does not exist."""


class ConflictError(ApiError):
    """The object's UID or resourceVersion differs from the one in the request."""


class AlreadyExistsError(ConflictError):
    """An object with that name exists already."""


class GoneError(ApiError):
    """The resourceVersion is too old; list again."""


class InvalidError(ApiError):
    """The object failed validation."""


class TooManyRequestsError(ApiError):
    """The server is throttling requests."""


class ServerError(ApiError):
    """The server failed; a write may or may not have taken effect."""


REFUSALS = (BadRequestError, ForbiddenError, NotFoundError, InvalidError)
"""Errors that a repeated request will most likely get again."""

_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}


def api_error(status: Status, *, retry_after_seconds: float | None = None) -> ApiError:
    """Return the exception for a Status."""
    if retry_after_seconds is None and status.details is not None and status.details.retry_after_seconds:
        retry_after_seconds = status.details.retry_after_seconds
    if status.code == 409 and status.reason == "AlreadyExists":
        return AlreadyExistsError(status, retry_after_seconds=retry_after_seconds)
    kind = _BY_CODE.get(status.code, ServerError if status.code >= 500 else ApiError)
    return kind(status, retry_after_seconds=retry_after_seconds)
