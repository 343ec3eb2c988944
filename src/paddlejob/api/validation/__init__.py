"""What is wrong with a job: every mistake as a field, a value and what to do, in Kubernetes' own form."""

from paddlejob.api.validation.errors import FieldError
from paddlejob.api.validation.job import validate

__all__ = ["FieldError", "validate"]
