"""What may be asked of a job's life: deadlines, restarts, whose success counts, who works on it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from paddlejob.api.defaulting import read_success_policy
from paddlejob.api.field_error import FieldError, describe, kind_errors
from paddlejob.api.v1 import PaddleJobSpec, RestartPolicy, SuccessPolicy

MAX_BACKOFF_LIMIT = 1000
EXIT_CODES = range(1, 256)
MAX_EXIT_CODES = 255
DEADLINE_SECONDS = range(1, 2**31)
TTL_SECONDS = range(2**31)
DELAY_SECONDS = range(3600 + 1)
MAX_DELAY_SECONDS = range(86400 + 1)
NODE_LOST_SECONDS = range(10, 86400 + 1)
MANAGED_BY_MAX = 63


def lifecycle_errors(spec: PaddleJobSpec) -> Iterator[FieldError]:
    """Yield what is wrong with the fields about a job's life."""
    yield from _range_errors("spec.backoffLimit", spec.backoff_limit, range(MAX_BACKOFF_LIMIT + 1))
    yield from _restart_policy_errors("spec.restartPolicy", spec.restart_policy)
    if read_success_policy(spec.success_policy) is None:
        known = " or ".join(SuccessPolicy)
        yield FieldError("spec.successPolicy", f"is {describe(spec.success_policy)}; write {known}")
    for field, seconds, allowed in (
        ("activeDeadlineSeconds", spec.active_deadline_seconds, DEADLINE_SECONDS),
        ("startupDeadlineSeconds", spec.startup_deadline_seconds, DEADLINE_SECONDS),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished, TTL_SECONDS),
    ):
        if seconds is not None:
            yield from _range_errors(f"spec.{field}", seconds, allowed)
    if len(spec.managed_by) > MANAGED_BY_MAX:
        yield FieldError(
            "spec.managedBy", f"is {describe(spec.managed_by)}; write at most {MANAGED_BY_MAX} characters"
        )


def _restart_policy_errors(path: str, policy: RestartPolicy) -> Iterator[FieldError]:
    codes = {
        "permanentExitCodes": policy.permanent_exit_codes,
        "retryableExitCodes": policy.retryable_exit_codes,
        "ignoredExitCodes": policy.ignored_exit_codes,
    }
    for field, listed in codes.items():
        yield from kind_errors(f"{path}.{field}", listed, tuple, most=MAX_EXIT_CODES)
        for index, code in enumerate(listed[:MAX_EXIT_CODES]):
            yield from _range_errors(f"{path}.{field}[{index}]", code, EXIT_CODES)
    for (field, listed), (other, others) in combinations(codes.items(), 2):
        for code in sorted(set(listed[:MAX_EXIT_CODES]) & set(others[:MAX_EXIT_CODES])):
            yield FieldError(
                f"{path}.{other}", f"has {code}, which {field} has too; remove it from one of them"
            )
    yield from _range_errors(f"{path}.delaySeconds", policy.delay_seconds, DELAY_SECONDS)
    yield from _range_errors(f"{path}.maxDelaySeconds", policy.max_delay_seconds, MAX_DELAY_SECONDS)
    yield from _range_errors(f"{path}.nodeLostSeconds", policy.node_lost_seconds, NODE_LOST_SECONDS)
    if policy.max_delay_seconds < policy.delay_seconds:
        yield FieldError(
            f"{path}.maxDelaySeconds",
            f"is {policy.max_delay_seconds}, less than delaySeconds {policy.delay_seconds}; raise it",
        )


def _range_errors(path: str, number: int, allowed: range) -> Iterator[FieldError]:
    if number not in allowed:
        yield FieldError(path, f"is {number}; write a number from {allowed[0]} to {allowed[-1]}")
