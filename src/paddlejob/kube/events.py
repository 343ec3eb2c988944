# ruff: noqa: A002  (`type` is the field name in Events)
"""Records Kubernetes Events about objects; a repeated event increments a count."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple, Self

import msgspec

from paddlejob.api.meta import JsonObject, ObjectMeta, View
from paddlejob.kube import errors
from paddlejob.kube.backoff import Backoff
from paddlejob.kube.client import Client
from paddlejob.kube.resource import EVENTS, Resource
from paddlejob.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

MESSAGE_LIMIT_BYTES = 1024
_NAME_LIMIT = 253
_SUFFIX_LENGTH = 17


class ObjectReference(View, frozen=True):
    """The object that an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @classmethod
    def to(cls, resource: Resource, metadata: ObjectMeta) -> ObjectReference:
        return cls(resource.api_version, resource.kind, metadata.namespace, metadata.name, metadata.uid)


class EventLimits(msgspec.Struct, frozen=True):
    """Limits on memory and writes of one recorder."""

    repeat_seconds: float = 10.0
    """Minimum time between two writes of the same event."""
    remembered: int = 1000
    """Maximum number of distinct events in memory, for counting repeats or waiting to be written.

    Beyond it, the namespace with the most events loses one.
    """
    writers: int = 8
    """Number of concurrent writes; namespaces share the writers fairly."""
    max_tries: int = 5
    flush_seconds: float = 5.0
    """Maximum time for writing the remaining events when the context exits."""


class EventRecorder:
    """Records Events about objects; use it as an async context manager.

    Guarantees: `record` does not block and never fails. Events that cannot be written within the limits are
    dropped and counted. Leaving the context writes the remaining events within `flush_seconds`. Rejected or
    slow events of one namespace neither delay nor displace events of another.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        rng: random.Random,
        now: Callable[[], datetime],
        limits: EventLimits | None = None,
    ) -> None:
        # A retry inside the client would block a writer; the queue retries instead.
        self._client = client.without_retries()
        self._component = component
        self._rng = rng
        self._now = now
        self._limits = limits or EventLimits()
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        """Least recently recorded first."""
        self._queue: WorkQueue[_Key] = WorkQueue(
            rng=rng,
            backoff=Backoff(1.0, 30.0),
            group_of=lambda key: key.regarding.namespace,
            workers=self._limits.writers,
        )
        self._writers: list[asyncio.Task[None]] = []
        self.dropped = 0
        """Number of events that were never written."""

    async def __aenter__(self) -> Self:
        self._writers = [
            asyncio.create_task(self._write_all(), name=f"event writer {number}")
            for number in range(self._limits.writers)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._queue.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.flush_seconds):
                await self._flush()
        self.dropped += sum(series.unwritten for series in self._series.values())

    def record(self, regarding: ObjectReference, type: str, reason: str, message: str) -> None:
        """Record an event about an object; `type` is Normal or Warning."""
        key = _Key(regarding, type, reason, truncate_message(message))
        series = self._series.get(key) or self._begin(key)
        if series is None:
            self.dropped += 1
            return
        self._series.move_to_end(key)
        series.count += 1
        series.last = self._now()
        if not self._queue.failures(key):
            # After a failure a retry is pending, and it will include this occurrence.
            self._queue.add(key, after_seconds=self._wait_seconds(series))

    def _begin(self, key: _Key) -> _Series | None:
        """Return a new series, or None if there is no room for it."""
        if len(self._series) >= self._limits.remembered and not self._make_room(key.regarding.namespace):
            return None
        now = self._now()
        self._series[key] = series = _Series(key, first=now, last=now)
        return series

    def _make_room(self, newcomer: str) -> bool:
        """Evict a series of the namespace with the most series; return whether there was one."""
        counts = Counter([newcomer, *(key.regarding.namespace for key in self._series)])
        # With equal counts, the newcomer's namespace comes first.
        largest = counts.most_common(1)[0][0]
        series = [each for key, each in self._series.items() if key.regarding.namespace == largest]
        written = (each for each in series if not each.unwritten)
        dropped = next(written, None if largest == newcomer else series[0])
        if dropped is None:
            return False
        self.dropped += dropped.unwritten
        del self._series[dropped.key]
        return True

    def _wait_seconds(self, series: _Series) -> float:
        """Return the time until the series may be written again."""
        if series.written_at is None:
            return 0.0
        return series.written_at + self._limits.repeat_seconds - asyncio.get_running_loop().time()

    async def _write_all(self) -> None:
        while (key := await self._queue.get()) is not None:
            series = self._series.get(key)
            if series is None or not series.unwritten:
                self._queue.forget(key)
            elif (wait_seconds := self._wait_seconds(series)) > 0:
                # It was recorded again during the write.
                self._queue.add(key, after_seconds=wait_seconds)
            else:
                await self._write(series)
            self._queue.done(key)

    async def _write(self, series: _Series) -> None:
        try:
            await self._send(series)
        except errors.KubeError as error:
            self._retry_or_drop(series, error)
        except Exception:
            log.exception("cannot write an event")
            self._give_up(series)
        else:
            self._queue.forget(series.key)

    async def _flush(self) -> None:
        # An event that a writer is sending right now is sent again under the same name, which is harmless.
        unwritten = [series for series in self._series.values() if series.unwritten]
        await asyncio.gather(*self._writers, *map(self._send, unwritten), return_exceptions=True)

    async def _send(self, series: _Series) -> None:
        count = series.count
        if not (series.exists and await self._try_patch(series)):
            await self._create(series)
        series.written_count = count
        series.written_at = asyncio.get_running_loop().time()

    async def _try_patch(self, series: _Series) -> bool:
        try:
            await self._client.patch(EVENTS, series.namespace, series.name, series.patch())
        except errors.NotFoundError:
            # The server deletes events after an hour.
            series.exists = False
        return series.exists

    async def _create(self, series: _Series) -> None:
        series.name = series.name or self._new_name(series.key.regarding.name)
        try:
            await self._client.create(EVENTS, series.namespace, series.body(self._component))
        except errors.AlreadyExistsError:
            # An earlier try took effect, but its response was lost.
            await self._client.patch(EVENTS, series.namespace, series.name, series.patch())
        series.exists = True

    def _new_name(self, about: str) -> str:
        # A truncated name must not end with a dash or a dot.
        return f"{about[: _NAME_LIMIT - _SUFFIX_LENGTH].rstrip('-.')}.{self._rng.getrandbits(64):016x}"

    def _retry_or_drop(self, series: _Series, error: errors.KubeError) -> None:
        is_temporary = isinstance(
            error, errors.TransportError | errors.ServerError | errors.TooManyRequestsError
        )
        if is_temporary and self._queue.failures(series.key) + 1 < self._limits.max_tries:
            self._queue.retry(series.key)
            return
        about = series.key.regarding
        log.warning("dropped event %s about %s/%s: %s", series.key.reason, about.kind, about.name, error)
        self._give_up(series)

    def _give_up(self, series: _Series) -> None:
        self._queue.forget(series.key)
        self.dropped += series.unwritten
        series.count = series.written_count


class _Key(NamedTuple):
    regarding: ObjectReference
    type: str
    reason: str
    message: str


class _Series(msgspec.Struct):
    """An event and its occurrences."""

    key: _Key
    first: datetime
    last: datetime
    count: int = 0
    written_count: int = 0
    """The count on the server."""
    written_at: float | None = None
    """Loop time of the last write; None before the first."""
    name: str = ""
    """Name of the Event on the server; retries reuse it, so a create with a lost response is not repeated."""
    exists: bool = False
    """Whether the server has the Event."""

    @property
    def unwritten(self) -> int:
        return self.count - self.written_count

    @property
    def namespace(self) -> str:
        """The Event's namespace; Events about cluster-scoped objects are stored in `default`."""
        return self.key.regarding.namespace or "default"

    def body(self, component: str) -> JsonObject:
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "involvedObject": self.key.regarding,
            "type": self.key.type,
            "reason": self.key.reason,
            "message": self.key.message,
            "firstTimestamp": timestamp(self.first),
            "source": {"component": component},
            "reportingComponent": component,
            **self.patch(),
        }

    def patch(self) -> JsonObject:
        return {"count": self.count, "lastTimestamp": timestamp(self.last)}


def truncate_message(message: str) -> str:
    """Cut a message to the API server's limit of 1024 bytes of UTF-8, between characters."""
    encoded = message.encode(errors="replace")
    if len(encoded) <= MESSAGE_LIMIT_BYTES:
        return encoded.decode()
    return encoded[: MESSAGE_LIMIT_BYTES - 3].decode(errors="ignore") + "..."


def timestamp(at: datetime) -> str:
    """Format a time for an Event, in UTC and whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
