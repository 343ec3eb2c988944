"""The objects of one kind at one resource version: a store with indexes.

One informer writes the cache and any number of readers use it, on one event loop. Every method except
`wait_for` and `wait_for_version` is synchronous, so a reader never sees half of a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from paddlejob.api import meta
from paddlejob.api.meta import HasMeta, ObjectKey, ObjectMeta

T = TypeVar("T", bound=HasMeta)

IndexFunction = Callable[[T], Iterable[str]]
"""Returns the index values of an object; it must depend on the object alone."""

_PARTS_PER_OBJECT = 8
_SPARE_PARTS = 1000
"""Bounds the number of shared parts, so that parts of deleted objects do not accumulate."""


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One object before and after a change, None if it does not exist; both have the same UID."""

    old: T | None
    new: T | None


class Cache(Generic[T]):
    """Objects of one kind by namespace and name, and by named indexes."""

    def __init__(
        self,
        indexes: Mapping[str, IndexFunction[T]] | None = None,
        share_parts: Callable[[T, Callable[[Any], Any]], None] | None = None,
    ) -> None:
        """`share_parts` is called with each new object and a function that deduplicates equal values."""
        self._objects: dict[ObjectKey, T] = {}
        self._index_functions: dict[str, IndexFunction[T]] = dict(indexes or {})
        # Dicts instead of sets: they keep insertion order, which makes runs reproducible.
        self._indexes: dict[str, dict[str, dict[ObjectKey, None]]] = {n: {} for n in self._index_functions}
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._parts: dict[Hashable, Hashable] = {}
        self._share_more = share_parts
        self.last_resource_version = ""
        """The version up to which the cache is complete; empty before the first list."""

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def get(self, key: ObjectKey) -> T | None:
        return self._objects.get(key)

    def find(self, index: str, value: str) -> tuple[T, ...]:
        """Return the objects with this index value, oldest insertion first.

        Raises KeyError for an unknown index.
        """
        return tuple(self._objects[key] for key in self._indexes[index].get(value, ()))

    def newest_first(self, index: str, value: str) -> Iterator[T]:
        """Yield the objects of `find` in reverse order, without copying them.

        The cache must not change during the iteration.
        """
        return (self._objects[key] for key in reversed(self._indexes[index].get(value, {})))

    def apply(self, observed: T, resource_version: str = "") -> tuple[Change[T], ...]:
        """Store an object and return the changes; there are none if the cache has this version already."""
        changes = self._put(observed)
        self.advance(resource_version or observed.metadata.resource_version)
        return changes

    def remove(self, key: ObjectKey, resource_version: str) -> tuple[Change[T], ...]:
        """Remove an object and return the changes."""
        removed = self._take(key)
        self.advance(resource_version)
        return () if removed is None else (Change(removed, None),)

    def advance(self, resource_version: str) -> None:
        """Record that the cache is complete up to a version, and check the waiters."""
        if resource_version:
            self.last_resource_version = resource_version
        for predicate, future in self._waiters:
            if future.done():
                continue
            try:
                if predicate():
                    future.set_result(None)
            except Exception as error:  # noqa: BLE001  (raise it in the waiter, not in the informer)
                future.set_exception(error)

    def replace(self, listed: Iterable[T], resource_version: str) -> tuple[Change[T], ...]:
        """Replace all objects with a complete list, and return the differences.

        Guarantees that no reader and no waiter sees a mixture of old and new objects. The version may be
        lower than before, for example after the server's storage was restored from a backup.
        """
        changes: list[Change[T]] = []
        unseen = dict.fromkeys(self._objects)
        for observed in listed:
            unseen.pop(observed.metadata.key, None)
            changes += self._put(observed)
        for key in unseen:
            changes.append(Change(self._take(key), None))
        self.advance(resource_version)
        return tuple(changes)

    def has_reached(self, resource_version: str) -> bool:
        """Return whether the cache includes a write of that version.

        Versions that are not numbers cannot be compared; they count as reached after the first list.
        """
        wanted = meta.resource_version_number(resource_version)
        known = meta.resource_version_number(self.last_resource_version)
        if wanted is None or known is None:
            return self.last_resource_version != ""
        return known >= wanted

    async def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Wait until the predicate holds; it is evaluated after every change. Its exceptions propagate."""
        if predicate():
            return
        waiter = (predicate, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            await waiter[1]
        finally:
            self._waiters.remove(waiter)

    async def wait_for_version(self, resource_version: str) -> None:
        """Wait until the cache includes a write of that version."""
        await self.wait_for(lambda: self.has_reached(resource_version))

    def _put(self, observed: T) -> tuple[Change[T], ...]:
        known = self._objects.get(observed.metadata.key)
        if known is not None and _is_same_version(known.metadata, observed.metadata):
            return ()
        self._share_parts(observed)
        key = observed.metadata.key
        gone: tuple[Change[T], ...] = ()
        if known is not None and known.metadata.uid != observed.metadata.uid:
            # A new object with the same name, not a new version of the old object.
            gone = (Change(self._take(key), None),)
            known = None
        self._refile(key, known, observed)
        self._objects[key] = observed
        self._bound_parts()
        return (*gone, Change(known, observed))

    def _take(self, key: ObjectKey) -> T | None:
        known = self._objects.pop(key, None)
        if known is not None:
            self._refile(key, known, None)
        self._bound_parts()
        return known

    def _refile(self, key: ObjectKey, old: T | None, new: T | None) -> None:
        for name, function in self._index_functions.items():
            before = () if old is None else tuple(function(old))
            after = () if new is None else tuple(function(new))
            if before == after:
                continue
            buckets = self._indexes[name]
            for value in before:
                if value not in after:
                    _drop_from_bucket(buckets, value, key)
            for value in after:
                if value not in before:
                    buckets.setdefault(value, {})[key] = None

    def _share_parts(self, observed: T) -> None:
        """Deduplicate equal parts of objects: namespaces, owners and most labels of a job's pods.

        The object has just been decoded and has no other reference, so changing it is safe.
        """
        # Not sys.intern: some Python releases never free interned strings.
        set_field, shared, metadata = msgspec.structs.force_setattr, self._shared, observed.metadata
        set_field(metadata, "namespace", shared(metadata.namespace))
        for field in ("labels", "annotations"):
            if texts := getattr(metadata, field):
                set_field(metadata, field, {shared(name): shared(value) for name, value in texts.items()})
        if metadata.owner_references:
            set_field(metadata, "owner_references", shared(metadata.owner_references))
        if self._share_more is not None:
            self._share_more(observed, shared)

    def _shared(self, part: Any) -> Any:
        return self._parts.setdefault(part, part)

    def _bound_parts(self) -> None:
        if len(self._parts) > _PARTS_PER_OBJECT * len(self._objects) + _SPARE_PARTS:
            self._parts.clear()


def _drop_from_bucket(buckets: dict[str, dict[ObjectKey, None]], value: str, key: ObjectKey) -> None:
    bucket = buckets.get(value, {})
    bucket.pop(key, None)
    if not bucket:
        buckets.pop(value, None)


def _is_same_version(known: ObjectMeta, observed: ObjectMeta) -> bool:
    return known.resource_version == observed.resource_version and known.uid == observed.uid
