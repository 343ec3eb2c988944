"""Whether the caches show what we wrote: watermarks instead of counters.

Each write leaves the resource version that it made, each delete the UID that it was about. A key whose marks
the caches have not reached is not looked at: deciding from the past would repeat what has been done. Nothing
is counted, so nothing can be miscounted: a missed event, a foreign write or a relist leaves no key stuck.
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

DEFAULT_LIMIT_SECONDS = 30.0


class _Marks(msgspec.Struct):
    """What the caches have yet to show for one owner."""

    last_write_at: float
    written: dict[Resource, str] = msgspec.field(default_factory=dict)
    deleting: dict[tuple[Resource, str], ObjectKey] = msgspec.field(default_factory=dict)


class Consistency:
    """Keeps an owner's key waiting until the caches include what was last written for it.

    Guarantees that nothing waits indefinitely: after `limit_seconds` without a write the marks are dropped,
    and `opened_unseen` counts it. The names of created objects are deterministic, so that even then a
    reconcile from an outdated cache only runs into a conflict.
    """

    def __init__(
        self, caches: Mapping[Resource, Cache[Any]], *, limit_seconds: float = DEFAULT_LIMIT_SECONDS
    ) -> None:
        self._caches = dict(caches)
        self._limit_seconds = limit_seconds
        self._marks: dict[ObjectKey, _Marks] = {}
        self.opened_unseen = 0

    def __len__(self) -> int:
        return len(self._marks)

    def wrote(self, owner: ObjectKey, resource: Resource, resource_version: str) -> None:
        """Record the version that a write returned; a resource without a cache is not waited for."""
        if resource not in self._caches or meta.resource_version_number(resource_version) is None:
            return
        written = self._marks_of(owner).written
        written[resource] = max(written.get(resource, "0"), resource_version, key=int)

    def deleting(self, owner: ObjectKey, resource: Resource, key: ObjectKey, uid: str) -> None:
        """Record that the server accepted a delete, whose response has no version of its own."""
        if resource in self._caches:
            self._marks_of(owner).deleting[resource, uid] = key

    def ready(self, owner: ObjectKey) -> bool:
        """Tell whether the caches include everything that was recorded for this owner."""
        marks = self._marks.get(owner)
        if marks is None:
            return True
        if self._is_seen(marks):
            del self._marks[owner]
            return True
        if asyncio.get_running_loop().time() - marks.last_write_at < self._limit_seconds:
            return False
        self.opened_unseen += 1
        del self._marks[owner]
        return True

    def forget(self, owner: ObjectKey) -> None:
        """Drop what was recorded for an owner, because it was deleted."""
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
