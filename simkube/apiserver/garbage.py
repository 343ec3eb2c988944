"""Controllers of the API server: the garbage collector and the namespace controller.

Both act some time after the fact, as the real ones do: a dependent outlives its owner for a while, and code
that reads in between sees it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from paddlejob.api.meta import JsonObject
from paddlejob.kube import resource as resources
from paddlejob.kube.errors import ApiError
from simkube.apiserver.deletes import FOREGROUND, ORPHAN
from simkube.apiserver.rules.kinds import ResourceType
from simkube.apiserver.store import DELETED, Change, Record, Store

Delete = Callable[[ResourceType, str, str, str], None]
"""Deletes by kind, namespace, name and UID, in the background, in the collector's name."""

Update = Callable[[Record, JsonObject], None]
"""Stores an object with other metadata, in the collector's name."""


class GarbageCollector:
    """Deletes objects without owners, by UID: another object with the owner's name is no owner."""

    def __init__(
        self,
        store: Store,
        *,
        delete: Delete,
        update: Update,
        rng: random.Random,
        delay_seconds: tuple[float, float],
    ) -> None:
        self.enabled = True
        self._store = store
        self._delete = delete
        self._update = update
        self._rng = rng
        self._delay_seconds = delay_seconds
        self._live: dict[str, Record] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        """Owner's UID to its dependents' UIDs, in order of arrival."""
        self._scheduled: set[str] = set()
        store.observers.append(self._observe)

    def _observe(self, change: Change) -> None:
        record, uid = change.record, change.record.uid
        if change.kind == DELETED:
            self._live.pop(uid, None)
            for owner in _owners(record):
                self._dependents.get(owner["uid"], {}).pop(uid, None)
                self._look_later(owner["uid"])
            for dependent in self._dependents.get(uid, ()):
                self._look_later(dependent)
            return
        self._live[uid] = record
        for owner in _owners(record):
            self._dependents.setdefault(owner["uid"], {})[uid] = None
        if self._needs_a_look(record):
            self._look_later(uid)

    def _needs_a_look(self, record: Record) -> bool:
        if _held_by(record, FOREGROUND) or _held_by(record, ORPHAN):
            return True
        return any(not self._is_present(owner, record) for owner in _owners(record))

    def _look_later(self, uid: str) -> None:
        if uid in self._scheduled or not self.enabled:
            return
        self._scheduled.add(uid)
        delay = self._rng.uniform(*self._delay_seconds)
        asyncio.get_running_loop().call_later(delay, self._look, uid)

    def _look(self, uid: str) -> None:
        self._scheduled.discard(uid)
        record = self._live.get(uid)
        if record is None or not self.enabled:
            return
        if _held_by(record, ORPHAN):
            self._orphan_dependents(record)
        elif _held_by(record, FOREGROUND):
            self._delete_dependents(record)
        elif _owners(record):
            self._judge(record)

    def _judge(self, record: Record) -> None:
        """Delete an object without an owner, or drop its references to owners that are gone."""
        owners = _owners(record)
        present = [owner for owner in owners if self._is_present(owner, record)]
        if present and len(present) < len(owners):
            self._update(record, {**record.metadata, "ownerReferences": present})
        elif not present and not record.metadata.get("deletionTimestamp"):
            self._remove(record)

    def _is_present(self, owner: JsonObject, dependent: Record) -> bool:
        """Return whether an owner exists, in the dependent's namespace or cluster-wide."""
        record = self._live.get(owner["uid"])
        return record is not None and record.namespace in {"", dependent.namespace}

    def _delete_dependents(self, owner: Record) -> None:
        """Delete the dependents that an owner waits for, and remove the owner once none is left."""
        for dependent in self._dependents_of(owner):
            if not dependent.metadata.get("deletionTimestamp"):
                self._remove(dependent)
        if not any(_blocks(dependent, owner.uid) for dependent in self._dependents_of(owner)):
            self._release(owner, FOREGROUND)

    def _dependents_of(self, owner: Record) -> list[Record]:
        found = [self._live.get(uid) for uid in self._dependents.get(owner.uid, ())]
        return [
            record
            for record in found
            if record is not None and any(ref["uid"] == owner.uid for ref in _owners(record))
        ]

    def _orphan_dependents(self, owner: Record) -> None:
        for dependent in self._dependents_of(owner):
            others = [ref for ref in _owners(dependent) if ref["uid"] != owner.uid]
            self._update(dependent, {**dependent.metadata, "ownerReferences": others})
        self._dependents.pop(owner.uid, None)
        self._release(owner, ORPHAN)

    def _release(self, record: Record, finalizer: str) -> None:
        current = self._live.get(record.uid)
        if current is not None:
            left = [name for name in current.metadata["finalizers"] if name != finalizer]
            self._update(current, {**current.metadata, "finalizers": left})

    def _remove(self, record: Record) -> None:
        try:
            self._delete(record.type, record.namespace, record.name, record.uid)
        except ApiError:
            self._look_later(record.uid)


class NamespaceController:
    """Empties a namespace that is being deleted, then takes it away."""

    def __init__(
        self, store: Store, *, delete: Delete, rng: random.Random, delay_seconds: tuple[float, float]
    ) -> None:
        self._store = store
        self._delete = delete
        self._rng = rng
        self._delay_seconds = delay_seconds
        store.observers.append(self._observe)

    def _observe(self, change: Change) -> None:
        record = change.record
        is_namespace = record.type.resource == resources.NAMESPACES
        if is_namespace and change.kind != DELETED and record.metadata.get("deletionTimestamp"):
            self._look_later(record.name)

    def _look_later(self, name: str) -> None:
        delay = self._rng.uniform(*self._delay_seconds)
        asyncio.get_running_loop().call_later(delay, self._look, name)

    def _look(self, name: str) -> None:
        contents = [
            record
            for table in self._store.tables.values()
            for record in table.objects.values()
            if record.namespace == name
        ]
        for record in contents:
            if not record.metadata.get("deletionTimestamp"):
                self._delete(record.type, record.namespace, record.name, record.uid)
        if contents:
            self._look_later(name)
            return
        table = self._store.tables[("", "v1", "namespaces")]
        if name in table.objects:
            self._store.remove(table.type, table.objects[name].body)


def _owners(record: Record) -> list[JsonObject]:
    owners: list[JsonObject] = record.body["metadata"].get("ownerReferences") or []
    return owners


def _held_by(record: Record, finalizer: str) -> bool:
    metadata = record.metadata
    return bool(metadata.get("deletionTimestamp")) and finalizer in (metadata.get("finalizers") or ())


def _blocks(dependent: Record, owner_uid: str) -> bool:
    return any(owner["uid"] == owner_uid and owner.get("blockOwnerDeletion") for owner in _owners(dependent))
