from __future__ import annotations

import pytest

from paddlejob.kube import errors


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequestError),
        (401, "Unauthorized", errors.UnauthorizedError),
        (403, "Forbidden", errors.ForbiddenError),
        (404, "NotFound", errors.NotFoundError),
        (409, "Conflict", errors.ConflictError),
        (409, "AlreadyExists", errors.AlreadyExistsError),
        (410, "Expired", errors.GoneError),
        (422, "Invalid", errors.InvalidError),
        (429, "TooManyRequests", errors.TooManyRequestsError),
        (500, "InternalError", errors.ServerError),
        (503, "ServiceUnavailable", errors.ServerError),
        (418, "", errors.ApiError),
    ],
)
def test_the_exception_fits_the_status(code, reason, kind):
    error = errors.api_error(errors.Status(code=code, reason=reason))
    assert type(error) is kind
    assert (error.code, error.reason) == (code, reason)


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        pytest.param(
            errors.Status(404, "NotFound", "pods x not found"), "pods x not found", id="its message"
        ),
        pytest.param(errors.Status(404, "NotFound"), "NotFound", id="else its reason"),
        pytest.param(errors.Status(404), "the API server responded with 404", id="else its code"),
    ],
)
def test_the_sentence_is_the_best_there_is(status, sentence):
    assert str(errors.api_error(status)) == sentence


def test_the_retry_after_header_takes_precedence_over_the_details():
    status = errors.Status(429, details=errors.StatusDetails(retry_after_seconds=3))
    assert errors.api_error(status).retry_after_seconds == 3
    assert errors.api_error(status, retry_after_seconds=5).retry_after_seconds == 5
    assert errors.api_error(errors.Status(429)).retry_after_seconds is None


def test_an_existing_object_is_a_conflict_too():
    assert issubclass(errors.AlreadyExistsError, errors.ConflictError)


def test_no_credentials_means_no_answer():
    assert issubclass(errors.CredentialsError, errors.TransportError)
