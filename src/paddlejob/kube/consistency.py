"""Read-your-writes consistency for caches, by watermarks instead of counters.

Each write records the resource version that it returned, each delete the UID of its object. A key is not
reconciled until the caches have reached its marks; a reconcile from an older cache would repeat the writes.
Watermarks cannot be miscounted: a missed event, a foreign write or a relist does not block a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from paddlejob.api import meta
from paddlejob.api.meta import ObjectKey
from paddlejob.kube.cache import Cache
from paddlejob.kube.resource import Resource

LIMIT_SECONDS = 30.0


class _Marks(msgspec.Struct):
    """The writes for one owner that the caches do not include yet."""

    last_write_at: float
    written: dict[Resource, str] = msgspec.field(default_factory=dict)
    deleting: dict[tuple[Resource, str], ObjectKey] = msgspec.field(default_factory=dict)


class Consistency:
    """Tracks whether the caches include the last writes for each owner.

    Guarantees that no owner waits forever: after LIMIT_SECONDS without a write its marks are dropped and
    `expired` is incremented. Created objects have deterministic names, so a reconcile from an outdated cache
    then fails with a conflict and does no harm.
    """

    def __init__(self, caches: Mapping[Resource, Cache[Any]]) -> None:
        self._caches = dict(caches)
        self._marks: dict[ObjectKey, _Marks] = {}
        self.expired = 0

    def __len__(self) -> int:
        return len(self._marks)

    def record_write(self, owner: ObjectKey, resource: Resource, resource_version: str) -> None:
        """Record the version that a write returned; ignore a resource without a cache."""
        if resource not in self._caches or meta.resource_version_number(resource_version) is None:
            return
        written = self._marks_of(owner).written
        written[resource] = max(written.get(resource, "0"), resource_version, key=int)

    def record_delete(self, owner: ObjectKey, resource: Resource, key: ObjectKey, uid: str) -> None:
        """Record that the server accepted a delete; the response to a delete has no version."""
        if resource in self._caches:
            self._marks_of(owner).deleting[resource, uid] = key

    def is_ready(self, owner: ObjectKey) -> bool:
        """Return whether the caches include all recorded writes for this owner."""
        marks = self._marks.get(owner)
        if marks is None:
            return True
        if self._is_seen(marks):
            del self._marks[owner]
            return True
        if asyncio.get_running_loop().time() - marks.last_write_at < LIMIT_SECONDS:
            return False
        self.expired += 1
        del self._marks[owner]
        return True

    def forget(self, owner: ObjectKey) -> None:
        """Drop the marks of a deleted owner."""
        self._marks.pop(owner, None)

    def _marks_of(self, owner: ObjectKey) -> _Marks:
        now = asyncio.get_running_loop().time()
        marks = self._marks.setdefault(owner, _Marks(now))
        marks.last_write_at = now
        return marks

    def _is_seen(self, marks: _Marks) -> bool:
        return all(
            self._caches[kind].has_reached(version) for kind, version in marks.written.items()
        ) and all(self._is_delete_seen(kind, key, uid) for (kind, uid), key in marks.deleting.items())

    def _is_delete_seen(self, resource: Resource, key: ObjectKey, uid: str) -> bool:
        cached = self._caches[resource].get(key)
        return cached is None or cached.metadata.uid != uid or cached.metadata.deletion_timestamp is not None
