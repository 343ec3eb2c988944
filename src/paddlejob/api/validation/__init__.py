"""Validates jobs; each error has a field, a value and a fix, in the format of the API server."""

from paddlejob.api.validation.errors import FieldError
from paddlejob.api.validation.job import validate

__all__ = ["FieldError", "validate"]
