# ruff: noqa: A002  (`type` is the word that Events use)
"""Which events are one event that happened again: series, combined series and limits, without any I/O."""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

import msgspec

from paddlejob.api.meta import JsonObject, ObjectMeta, View
from paddlejob.kube.resource import EVENTS, Resource

K = TypeVar("K")
V = TypeVar("V")

MESSAGE_LIMIT_BYTES = 1024
COMBINED_PREFIX = "(combined from similar events): "


class ObjectReference(View, frozen=True):
    """The object that an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""

    @classmethod
    def to(cls, resource: Resource, metadata: ObjectMeta) -> ObjectReference:
        """Return a reference to an object of a kind."""
        return cls(
            resource.api_version,
            resource.kind,
            metadata.namespace,
            metadata.name,
            metadata.uid,
            metadata.resource_version,
        )


class EventLimits(msgspec.Struct, frozen=True):
    """How much one process may write about its objects."""

    repeat_seconds: float = 10.0
    """An event that happens again and again is written at most this often."""
    similar_messages: int = 10
    """So many messages of one type and reason about one object are told apart; more are combined."""
    similar_seconds: float = 600.0
    """The time after which messages are told apart again."""
    burst: int = 25
    """So many writes about one object may follow each other at once."""
    refill_seconds: float = 300.0
    """After this time one more is allowed."""
    objects_remembered: int = 4096
    max_waiting: int = 1000
    """So many events may wait to be written; more are dropped."""
    max_tries: int = 5
    flush_seconds: float = 5.0
    """How long the end of the process may wait for what has not been written."""


class Identity(NamedTuple):
    """Which object an event is about; not in which version."""

    kind: str
    namespace: str
    name: str
    uid: str


class SeriesKey(NamedTuple):
    """What makes two events one."""

    regarding: Identity
    type: str
    reason: str
    message: str


class Series(msgspec.Struct):
    """An event and how often it happened."""

    key: SeriesKey
    regarding: ObjectReference
    message: str
    first: datetime
    last: datetime
    count: int = 0
    written_count: int = 0
    """What the server knows."""
    written_at: float | None = None
    """Loop time of the last write; None before the first."""
    name: str = ""
    """Of the Event on the server; the same for every try, so that one whose answer was lost is recognised."""
    exists: bool = False
    """Whether the server has that Event."""

    @property
    def is_unwritten(self) -> bool:
        """Whether the server does not know it all."""
        return self.count > self.written_count

    @property
    def namespace(self) -> str:
        """Where the Event is kept; what happens to cluster-wide objects is told in `default`."""
        return self.regarding.namespace or "default"

    def body(self, component: str) -> JsonObject:
        """Return the Event to create."""
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "involvedObject": self.regarding,
            "type": self.key.type,
            "reason": self.key.reason,
            "firstTimestamp": timestamp(self.first),
            "source": {"component": component},
            "reportingComponent": component,
            **self.patch(),
        }

    def patch(self) -> JsonObject:
        """Return what changes when it happens again."""
        return {"message": self.message, "count": self.count, "lastTimestamp": timestamp(self.last)}


class Correlator:
    """Sorts events into series and bounds how many are written about one object."""

    def __init__(self, limits: EventLimits) -> None:
        self._limits = limits
        self._series: _Recent[SeriesKey, Series] = _Recent(limits.objects_remembered)
        self._similar: _Recent[SeriesKey, tuple[float, set[str]]] = _Recent(limits.objects_remembered)
        self._tokens: _Recent[Identity, tuple[float, float]] = _Recent(limits.objects_remembered)

    def note(
        self,
        regarding: ObjectReference,
        type: str,
        reason: str,
        message: str,
        *,
        at: datetime,
        seconds: float,
    ) -> Series | None:
        """Count an event in its series and return that, None when there are too many about the object.

        `at` is the date that people see; `seconds` are on the clock that limits are measured with.
        """
        identity = Identity(regarding.kind, regarding.namespace, regarding.name, regarding.uid)
        message = truncated(message)
        key = SeriesKey(identity, type, reason, message)
        if self._is_one_too_many(key, seconds):
            message = truncated(COMBINED_PREFIX + message)
            key = key._replace(message=COMBINED_PREFIX)
        series = self._series.get(key)
        if series is None:
            if not self.may_write(key, seconds):
                return None
            series = Series(key, regarding, message, first=at, last=at)
            self._series.put(key, series)
        series.count += 1
        series.message, series.last = message, at
        return series

    def find(self, key: SeriesKey) -> Series | None:
        """Return a series that is still remembered."""
        return self._series.get(key)

    def unwritten(self) -> list[Series]:
        """Return the series that the server does not know all of, oldest first."""
        return sorted((each for each in self._series.values() if each.is_unwritten), key=lambda s: s.first)

    def may_write(self, key: SeriesKey, seconds: float) -> bool:
        """Take one of the writes that are allowed about the series' object, if there is one left."""
        burst = float(self._limits.burst)
        left, since = self._tokens.get(key.regarding) or (burst, seconds)
        left = min(burst, left + (seconds - since) / self._limits.refill_seconds)
        allowed = left >= 1
        self._tokens.put(key.regarding, (left - 1 if allowed else left, seconds))
        return allowed

    def _is_one_too_many(self, key: SeriesKey, seconds: float) -> bool:
        group = key._replace(message="")
        since, messages = self._similar.get(group) or (seconds, set())
        if seconds - since > self._limits.similar_seconds:
            since, messages = seconds, set()
        if len(messages) < self._limits.similar_messages:
            messages.add(key.message)
        self._similar.put(group, (since, messages))
        return key.message not in messages


class _Recent(Generic[K, V]):
    """A dict that forgets what was not used for longest."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def values(self) -> list[V]:
        return list(self._entries.values())


def truncated(message: str) -> str:
    """Return a message that the API server takes: at most 1024 bytes of UTF-8, cut between characters."""
    encoded = message.encode(errors="replace")
    if len(encoded) <= MESSAGE_LIMIT_BYTES:
        return encoded.decode()
    return encoded[: MESSAGE_LIMIT_BYTES - 3].decode(errors="ignore") + "..."


def timestamp(at: datetime) -> str:
    """Return a date as Events write it, in UTC and whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
