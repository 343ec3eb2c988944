# ruff: noqa: A002  (`type` is the word that Events use)
"""Kubernetes Events about objects: an event that happens again is counted, not written again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
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
        """Return a reference to an object of a kind."""
        return cls(resource.api_version, resource.kind, metadata.namespace, metadata.name, metadata.uid)


class EventLimits(msgspec.Struct, frozen=True):
    """How much one process remembers and writes."""

    repeat_seconds: float = 10.0
    """An event that happens again and again is written at most this often."""
    remembered: int = 1000
    """Maximum number of different events that are remembered, to count repeats, or wait to be written.

    Beyond that, the namespace with the most of them loses one.
    """
    writers: int = 8
    """Number of events that are written concurrently; namespaces share the writers fairly."""
    max_tries: int = 5
    flush_seconds: float = 5.0
    """How long leaving the context may take to write the rest."""


class EventRecorder:
    """Records Events about objects; use it as a context manager around the work.

    Guarantees: `record` does not wait and never fails; events that cannot be written within the limits are
    dropped and counted; leaving the context writes the rest, within `flush_seconds`. Events of one namespace
    that are refused or slow neither delay nor displace events of another.
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
        # A retry inside the client would keep a writer waiting; the queue retries instead.
        self._client = client.without_retries()
        self._component = component
        self._rng = rng
        self._now = now
        self._limits = limits or EventLimits()
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        """The event that has not happened for longest comes first."""
        self._queue: WorkQueue[_Key] = WorkQueue(
            rng=rng,
            backoff=Backoff(1.0, 30.0),
            group_of=lambda key: key.regarding.namespace,
            workers=self._limits.writers,
        )
        self._writers: list[asyncio.Task[None]] = []
        self.dropped = 0
        """How many events were never written."""

    async def __aenter__(self) -> Self:
        self._writers = [
            asyncio.create_task(self._write_all(), name=f"event writer {number}")
            for number in range(self._limits.writers)
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.flush_seconds):
                await self._flush()
        self.dropped += sum(series.unwritten for series in self._series.values())

    def record(self, regarding: ObjectReference, type: str, reason: str, message: str) -> None:
        """Record an event about an object; `type` is Normal or Warning."""
        key = _Key(regarding, type, reason, truncated(message))
        series = self._series.get(key) or self._begin(key)
        if series is None:
            self.dropped += 1
            return
        self._series.move_to_end(key)
        series.count += 1
        series.last = self._now()
        if not self._queue.failures(key):
            # One that failed is about to be retried, which will include this time too.
            self._queue.add(key, after_seconds=self._wait_seconds(series))

    def _begin(self, key: _Key) -> _Series | None:
        """Return a new series, None when the namespace of the key has no room for it."""
        if len(self._series) >= self._limits.remembered and not self._make_room(key.regarding.namespace):
            return None
        now = self._now()
        self._series[key] = series = _Series(key, first=now, last=now)
        return series

    def _make_room(self, newcomer: str) -> bool:
        """Forget a series of the namespace that has most; return whether there was one to forget."""
        counts = Counter([newcomer, *(key.regarding.namespace for key in self._series)])
        # Of namespaces with equal counts, the newcomer's comes first.
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
        """Return how long a series must wait before it is written again."""
        if series.written_at is None:
            return 0.0
        return series.written_at + self._limits.repeat_seconds - asyncio.get_running_loop().time()

    async def _write_all(self) -> None:
        while (key := await self._queue.get()) is not None:
            series = self._series.get(key)
            if series is None or not series.unwritten:
                self._queue.forget(key)
            elif (wait_seconds := self._wait_seconds(series)) > 0:
                # It happened again while it was being written.
                self._queue.add(key, after_seconds=wait_seconds)
            else:
                await self._write(series)
            self._queue.done(key)

    async def _write(self, series: _Series) -> None:
        try:
            await self._send(series)
        except errors.KubeError as error:
            self._failed(series, error)
        except Exception:
            log.exception("an event could not be written")
            self._give_up(series)
        else:
            self._queue.forget(series.key)

    async def _flush(self) -> None:
        # An event that a writer is busy with is sent again under the same name, which does no harm.
        unwritten = [series for series in self._series.values() if series.unwritten]
        await asyncio.gather(*self._writers, *map(self._send, unwritten), return_exceptions=True)

    async def _send(self, series: _Series) -> None:
        """Write the series to the server."""
        count = series.count
        if not (series.exists and await self._try_patch(series)):
            await self._create(series)
        series.written_count = count
        series.written_at = asyncio.get_running_loop().time()

    async def _try_patch(self, series: _Series) -> bool:
        try:
            await self._client.patch(EVENTS, series.namespace, series.name, series.patch())
        except errors.NotFoundError:
            # The server forgets events after an hour.
            series.exists = False
        return series.exists

    async def _create(self, series: _Series) -> None:
        series.name = series.name or self._new_name(series.key.regarding.name)
        try:
            await self._client.create(EVENTS, series.namespace, series.body(self._component))
        except errors.AlreadyExistsError:
            # An earlier try took effect, and only its response was lost.
            await self._client.patch(EVENTS, series.namespace, series.name, series.patch())
        series.exists = True

    def _new_name(self, about: str) -> str:
        # What is left of a long name must still end as a name may end.
        return f"{about[: _NAME_LIMIT - _SUFFIX_LENGTH].rstrip('-.')}.{self._rng.getrandbits(64):016x}"

    def _failed(self, series: _Series, error: errors.KubeError) -> None:
        is_passing = isinstance(
            error, errors.TransportError | errors.ServerError | errors.TooManyRequestsError
        )
        if is_passing and self._queue.failures(series.key) + 1 < self._limits.max_tries:
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
    """Events with the same identity are counted as one series."""

    regarding: ObjectReference
    type: str
    reason: str
    message: str


class _Series(msgspec.Struct):
    """An event and how often it happened."""

    key: _Key
    first: datetime
    last: datetime
    count: int = 0
    written_count: int = 0
    """What the server knows."""
    written_at: float | None = None
    """Loop time of the last write; None before the first."""
    name: str = ""
    """Name of the Event on the server; the same for every try, to recognise one whose response was lost."""
    exists: bool = False
    """Whether the server has that Event."""

    @property
    def unwritten(self) -> int:
        """How many times the server does not know of."""
        return self.count - self.written_count

    @property
    def namespace(self) -> str:
        """The Event's namespace; Events about cluster-wide objects are kept in `default`."""
        return self.key.regarding.namespace or "default"

    def body(self, component: str) -> JsonObject:
        """Return the Event to create."""
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
        """Return what changes when it happens again."""
        return {"count": self.count, "lastTimestamp": timestamp(self.last)}


def truncated(message: str) -> str:
    """Return a message that the API server takes: at most 1024 bytes of UTF-8, cut between characters."""
    encoded = message.encode(errors="replace")
    if len(encoded) <= MESSAGE_LIMIT_BYTES:
        return encoded.decode()
    return encoded[: MESSAGE_LIMIT_BYTES - 3].decode(errors="ignore") + "..."


def timestamp(at: datetime) -> str:
    """Return a time as Events write it, in UTC and whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
