"""Edits that make the spec of a job invalid, early or late, temporarily or permanently."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject

WRONG: tuple[JsonObject, ...] = (
    {"backoffLimit": -1},
    {"worker": {"replicas": 0}},
    {"activeDeadlineSeconds": -5},
    {"intranet": "Carrier pigeon"},
    {"successPolicy": "Nobody"},
    {"cleanPodPolicy": "Sometimes"},
    {"restartPolicy": "does not even decode"},
)
"""Merge patches of a spec."""


class Mistake(msgspec.Struct, frozen=True):
    """An edit of a job that makes its spec invalid, and perhaps another one that corrects it."""

    job: str
    wrong: JsonObject
    right: JsonObject
    at_seconds: float
    corrected_at_seconds: float | None = None


def draw(rng: random.Random, jobs: tuple[JsonObject, ...], until: float) -> Mistake | None:
    """Draw a mistake, which most histories have none of."""
    if rng.random() < 0.85:
        return None
    job, wrong = rng.choice(jobs), rng.choice(WRONG)
    at = rng.choice((rng.uniform(0, 5), rng.uniform(0, until)))
    corrected = rng.choice((None, rng.uniform(at, until)))
    return Mistake(job["metadata"]["name"], wrong, reverse(wrong, job["spec"]), at, corrected)


def is_wrong(spec: JsonObject) -> bool:
    """Return whether a spec has any of these mistakes."""
    return any(_has(spec, wrong) for wrong in WRONG)


def _has(value: Any, part: Any) -> bool:
    if isinstance(part, dict) and isinstance(value, dict):
        return all(_has(value.get(field), wanted) for field, wanted in part.items())
    return bool(value == part)


def reverse(patch: JsonObject, spec: JsonObject) -> dict[str, Any]:
    """Return the merge patch that undoes another one."""
    return {
        field: reverse(value, spec[field]) if isinstance(value, dict) and field in spec else spec.get(field)
        for field, value in patch.items()
    }
