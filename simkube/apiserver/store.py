"""Versioned storage: objects as immutable JSON, one global version, and a window of past changes.

A body is never changed after it was stored; a write builds a new one that shares the unchanged parts. Each
version of an object is encoded once, for every reader and watcher.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from paddlejob.api.meta import JsonObject
from simkube.apiserver import refusals
from simkube.apiserver.rules.kinds import ResourceType

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"

_encoder = msgspec.json.Encoder()


def object_key(namespace: str, name: str) -> str:
    """Return the key that storage sorts by, as etcd does."""
    return f"{namespace}/{name}" if namespace else name


class Record:
    """One version of one object."""

    __slots__ = ("_encoded", "body", "type", "version")

    def __init__(self, kind: ResourceType, body: JsonObject, version: int) -> None:
        self.type = kind
        self.body = body
        self.version = version
        self._encoded: bytes | None = None

    @property
    def metadata(self) -> JsonObject:
        """The object's metadata, not to be changed."""
        metadata: JsonObject = self.body["metadata"]
        return metadata

    @property
    def name(self) -> str:
        """Unique within its namespace."""
        name: str = self.body["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        """Empty for cluster-wide objects."""
        namespace: str = self.body["metadata"].get("namespace", "")
        return namespace

    @property
    def uid(self) -> str:
        """Never used twice."""
        uid: str = self.body["metadata"]["uid"]
        return uid

    @property
    def key(self) -> str:
        """Key in the storage."""
        return object_key(self.namespace, self.name)

    def encoded(self) -> bytes:
        """Return the object as JSON, with apiVersion and kind."""
        return self.type.head + self.encoded_item()[1:]

    def encoded_item(self) -> bytes:
        """Return the object as it stands in a list of a built-in kind, without apiVersion and kind."""
        if self._encoded is None:
            self._encoded = _encoder.encode(self.body)
        return self._encoded


class Change:
    """One step in the history of a kind."""

    __slots__ = ("_lines", "kind", "previous", "record", "version")

    def __init__(self, kind: str, record: Record, previous: Record | None) -> None:
        self.kind = kind
        self.record = record
        self.previous = previous
        self.version = record.version
        self._lines: dict[str, bytes] = {}

    def line(self, kind: str) -> bytes:
        """Return the watch event with this kind.

        If an object no longer matches a selector, the kind is DELETED and the event shows the old object.
        """
        line = self._lines.get(kind)
        if line is None:
            record = self.record
            if kind == DELETED and self.kind != DELETED:
                assert self.previous is not None
                record = Record(record.type, _with_version(self.previous.body, self.version), self.version)
            line = b'{"type":"%s","object":%s}\n' % (kind.encode(), record.encoded())
            self._lines[kind] = line
        return line


class Table:
    """The objects of one kind and their recent history."""

    __slots__ = ("changes", "compacted", "objects", "subscribers", "type")

    def __init__(self, kind: ResourceType, *, version: int) -> None:
        self.type = kind
        self.objects: dict[str, Record] = {}
        self.changes: deque[Change] = deque()
        self.compacted = version
        """Changes up to this version are forgotten."""
        self.subscribers: list[Callable[[Change], None]] = []

    def since(self, version: int) -> Iterator[Change]:
        """Yield the changes after a version.

        Raises ApiError (410) when some of them are forgotten.
        """
        if version < self.compacted:
            raise refusals.expired(f"too old resource version: {version} ({self.compacted})")
        return (change for change in self.changes if change.version > version)

    def at(self, version: int) -> dict[str, Record]:
        """Return the objects as they were at a version.

        Raises ApiError (410) when that is too long ago.
        """
        if version < self.compacted:
            raise refusals.expired("The resourceVersion for the provided list is too old.")
        objects = dict(self.objects)
        for change in reversed(self.changes):
            if change.version <= version:
                break
            if change.previous is None:
                objects.pop(change.record.key, None)
            else:
                objects[change.previous.key] = change.previous
        return objects

    def compact(self, version: int) -> None:
        """Forget the changes up to a version."""
        while self.changes and self.changes[0].version <= version:
            self.changes.popleft()
        self.compacted = max(self.compacted, version)


class Store:
    """All tables, under one version that every change increases."""

    def __init__(self, *, history_limit: int = 10_000, first_version: int = 990) -> None:
        self.version = first_version
        """Starts below 1000, so that a comparison of versions as text fails."""
        self.tables: dict[tuple[str, str, str], Table] = {}
        self.observers: list[Callable[[Change], None]] = []
        """Called with each change, before the watchers are."""
        self._history_limit = history_limit

    def table(self, kind: ResourceType) -> Table:
        """Return the table of a kind, made when it is first used."""
        table = self.tables.get(kind.key)
        if table is None:
            table = self.tables[kind.key] = Table(kind, version=self.version)
        return table

    def get(self, kind: ResourceType, namespace: str, name: str) -> Record:
        """Return an object.

        Raises ApiError (404) when there is none.
        """
        record = self.table(kind).objects.get(object_key(namespace, name))
        if record is None:
            raise refusals.not_found(kind.resource, name)
        return record

    def put(self, kind: ResourceType, body: JsonObject) -> Record:
        """Store an object under a new version."""
        table = self.table(kind)
        self.version += 1
        record = Record(kind, _with_version(body, self.version), self.version)
        key = record.key
        previous = table.objects.get(key)
        table.objects[key] = record
        self._publish(table, Change(ADDED if previous is None else MODIFIED, record, previous))
        return record

    def remove(self, kind: ResourceType, body: JsonObject) -> Record:
        """Remove an object; its last body has the version of the removal."""
        table = self.table(kind)
        self.version += 1
        record = Record(kind, _with_version(body, self.version), self.version)
        previous = table.objects.pop(record.key)
        self._publish(table, Change(DELETED, record, previous))
        return record

    def compact(self) -> None:
        """Forget all history, as etcd does every few minutes: watches must start from the present."""
        for table in self.tables.values():
            table.compact(self.version)

    def _publish(self, table: Table, change: Change) -> None:
        table.changes.append(change)
        if len(table.changes) > self._history_limit:
            table.compact(table.changes[0].version)
        for observer in self.observers:
            observer(change)
        for subscriber in table.subscribers:
            subscriber(change)


def _with_version(body: JsonObject, version: int) -> JsonObject:
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}
