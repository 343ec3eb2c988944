# ruff: noqa: A002  (`type` is the word that Events use)
"""Events: what `kubectl describe` shows under an object, written in the background and sparingly.

record ──> series ──> queue ──> writer ──> API server
           │ the same again: counted, and written at most every ten seconds
           │ the same in ever other words: one combined series
           └ too many about one object: dropped, and counted
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Self

from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.event_series import Correlator, EventLimits, ObjectReference, Series, SeriesKey
from paddlejob.kube.resource import EVENTS
from paddlejob.kube.workqueue import Backoff, WorkQueue

__all__ = ["EventLimits", "EventRecorder", "ObjectReference"]

log = logging.getLogger(__name__)

_NAME_LIMIT = 253
_SUFFIX_LENGTH = 17


class EventRecorder:
    """Tells people what happened to an object; use it as a context manager around the work.

    Guarantees: `record` returns at once and never fails; what cannot be written within the limits is dropped
    and counted; leaving the context writes the rest, within `flush_seconds`.
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
        self._client = client
        self._component = component
        self._rng = rng
        self._now = now
        self._limits = limits or EventLimits()
        self._correlator = Correlator(self._limits)
        self._queue: WorkQueue[SeriesKey] = WorkQueue(rng=rng, backoff=Backoff(1.0, 30.0))
        self._writer: asyncio.Task[None] | None = None
        self.dropped = 0
        """How many events were never written."""

    async def __aenter__(self) -> Self:
        self._writer = asyncio.create_task(self._write_all(), name="event-writer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.flush_seconds):
                await self._flush()
        self.dropped += sum(each.count - each.written_count for each in self._correlator.unwritten())

    def record(self, regarding: ObjectReference, type: str, reason: str, message: str) -> None:
        """Note that something happened to an object; `type` is Normal or Warning."""
        now = asyncio.get_running_loop().time()
        series = self._correlator.note(regarding, type, reason, message, at=self._now(), seconds=now)
        if series is None:
            self.dropped += 1
        elif self._queue.depth + self._queue.delayed >= self._limits.max_waiting:
            self._give_up(series)
        elif not self._queue.failures(series.key):
            # One that failed waits for its next try already, which will tell of this time too.
            self._queue.add(series.key, after_seconds=self._wait_seconds(series))

    def _wait_seconds(self, series: Series) -> float:
        """Return how long a series must wait before it is written again."""
        if series.written_at is None:
            return 0.0
        return series.written_at + self._limits.repeat_seconds - asyncio.get_running_loop().time()

    async def _write_all(self) -> None:
        while (key := await self._queue.get()) is not None:
            try:
                series = self._correlator.find(key)
                if series is not None and series.is_unwritten:
                    await self._write(series)
            except Exception:
                log.exception("an event could not be written")
            finally:
                self._queue.done(key)

    async def _flush(self) -> None:
        assert self._writer is not None, "the recorder was left before it was entered"
        await self._writer
        for series in self._correlator.unwritten():
            with suppress(errors.KubeError):
                await self._send(series)

    async def _write(self, series: Series) -> None:
        wait_seconds = self._wait_seconds(series)
        if wait_seconds > 0:
            # It happened again while its first time was being written.
            self._queue.add(series.key, after_seconds=wait_seconds)
            return
        if series.exists and not self._correlator.may_write(series.key, asyncio.get_running_loop().time()):
            # The count is not lost: it goes with the next write that is allowed.
            return
        try:
            await self._send(series)
        except errors.KubeError as error:
            self._failed(series, error)
        else:
            self._queue.forget(series.key)

    async def _send(self, series: Series) -> None:
        """Bring the server up to date."""
        count = series.count
        if not (series.exists and await self._try_patch(series)):
            await self._create(series)
        series.written_count = count
        series.written_at = asyncio.get_running_loop().time()

    async def _try_patch(self, series: Series) -> bool:
        try:
            await self._client.patch(EVENTS, series.namespace, series.name, series.patch())
        except errors.NotFoundError:
            # The server forgets events after an hour.
            series.exists = False
        return series.exists

    async def _create(self, series: Series) -> None:
        series.name = series.name or self._new_name(series.regarding.name)
        try:
            await self._client.create(EVENTS, series.namespace, series.body(self._component))
        except errors.AlreadyExistsError:
            # An earlier try took effect, and only its answer was lost.
            await self._client.patch(EVENTS, series.namespace, series.name, series.patch())
        series.exists = True

    def _new_name(self, about: str) -> str:
        # What is left of a long name must still end as a name may end.
        return f"{about[: _NAME_LIMIT - _SUFFIX_LENGTH].rstrip('-.')}.{self._rng.getrandbits(64):016x}"

    def _failed(self, series: Series, error: errors.KubeError) -> None:
        is_passing = isinstance(
            error, errors.TransportError | errors.ServerError | errors.TooManyRequestsError
        )
        if is_passing and self._queue.failures(series.key) + 1 < self._limits.max_tries:
            self._queue.retry(series.key)
            return
        regarding = series.regarding
        log.warning(
            "event %s about %s/%s is lost: %s", series.key.reason, regarding.kind, regarding.name, error
        )
        self._queue.forget(series.key)
        self._give_up(series)

    def _give_up(self, series: Series) -> None:
        self.dropped += series.count - series.written_count
        series.count = series.written_count
