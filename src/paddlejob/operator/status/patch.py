"""The difference between two statuses of a job as a merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJobStatus


def status_patch(old: PaddleJobStatus, new: PaddleJobStatus) -> JsonObject:
    """Return a merge patch from one status to another, in which null removes a field at any depth."""
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    gone = dict.fromkeys(before.keys() - after.keys())
    changed = {field: value for field, value in after.items() if before.get(field) != value}
    return {**gone, **{field: _replacing(before.get(field), value) for field, value in changed.items()}}


def _replacing(old: Any, new: Any) -> Any:
    """Return a patch that leaves nothing of the old value."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    gone = dict.fromkeys(old.keys() - new.keys())
    return {**gone, **{name: _replacing(old.get(name), value) for name, value in new.items()}}
