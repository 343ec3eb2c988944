"""What can go wrong between us and the API server.

KubeError
├── ConfigError              the kubeconfig or the in-cluster identity cannot be used
├── TransportError           no answer: connection refused, reset, TLS, time-out
│   ├── TransportTimeoutError
│   ├── ResponseTooLargeError
│   └── CredentialsError     the request was not sent: no token or certificate could be had just now
├── NotLeaderError           the request was not sent: this process is not, or no longer, the leader
├── UndecodableError         the server answered with something that is not what was asked for
└── ApiError                 the server answered with a Status (code, reason, message, causes)
    ├── BadRequestError      400  a body that does not decode strictly, for one
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
    """Base of everything that this package raises."""


class ConfigError(KubeError):
    """The credentials or the address of the API server cannot be used; the message says what to change."""


class TransportError(KubeError):
    """The request got no answer. Whether a write took effect is not known."""


class TransportTimeoutError(TransportError):
    """The request got no answer in time."""


class ResponseTooLargeError(TransportError):
    """The response is larger than the transport accepts; a list can be read in smaller pages."""


class CredentialsError(TransportError):
    """No credentials could be had, so the request was not sent; the message says why."""


class NotLeaderError(KubeError):
    """The write was not sent, because this process does not hold the lease that allows it."""


class UndecodableError(KubeError):
    """The server's answer does not fit the type that was asked for. A write took effect."""


class StatusCause(msgspec.Struct, frozen=True, rename="camel"):
    """One of several reasons in a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The machine-readable part of a Status."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: float = 0


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """How the API server reports a failure."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class ApiError(KubeError):
    """The API server refused the request."""

    def __init__(self, status: Status, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(status.message or status.reason or f"the API server answered {status.code}")
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    @property
    def code(self) -> int:
        """The HTTP status code."""
        return self.status.code

    @property
    def reason(self) -> str:
        """The Status reason, such as AlreadyExists or Expired."""
        return self.status.reason


class BadRequestError(ApiError):
    """The body does not fit the object's schema."""


class UnauthorizedError(ApiError):
    """The credentials are missing, wrong or expired."""


class ForbiddenError(ApiError):
    """RBAC, a quota or an admission plugin says no."""


class NotFoundError(ApiError):
    """There is no such object, or no such resource on this cluster."""


class ConflictError(ApiError):
    """The object is not the one, or not in the version, that the request was about."""


class AlreadyExistsError(ConflictError):
    """An object of that name exists."""


class GoneError(ApiError):
    """The resourceVersion has been compacted away; list again."""


class InvalidError(ApiError):
    """The object decodes, and breaks a rule."""


class TooManyRequestsError(ApiError):
    """The server asks to slow down."""


class ServerError(ApiError):
    """The server failed; whether a write took effect is not known."""


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
    """Return the exception that fits a Status."""
    if retry_after_seconds is None and status.details is not None and status.details.retry_after_seconds:
        retry_after_seconds = status.details.retry_after_seconds
    if status.code == 409 and status.reason == "AlreadyExists":
        return AlreadyExistsError(status, retry_after_seconds=retry_after_seconds)
    kind = _BY_CODE.get(status.code, ServerError if status.code >= 500 else ApiError)
    return kind(status, retry_after_seconds=retry_after_seconds)
