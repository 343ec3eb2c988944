"""What the ranks of a job have written so far, in order of time."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from paddlejob.client import ranks
from paddlejob.client.errors import TooManyLogsError
from paddlejob.client.job import describe
from paddlejob.client.logs.container_log import ContainerLog, Source, view_of
from paddlejob.client.logs.follow import containers_of, since_of, source_of, too_many
from paddlejob.client.logs.model import LogBlock, LogItem, LogQuery, Marker, time_of
from paddlejob.client.logs.recorded import recorded_logs
from paddlejob.kube import errors
from paddlejob.kube.client import Client

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob

QUEUED_BLOCKS = 4
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


async def history(job: ClusterJob, query: LogQuery) -> AsyncGenerator[LogItem, None]:
    """Yield the lines of all containers that have started, or of those before their last restart.

    The pods of a finished job that are gone are replaced by the operator's record. Raises ClientError and
    KubeError.
    """
    state = await job.refresh()
    pods = ranks.select(state, await job.pods(), query.rank)
    if state.status.phase.is_terminal:
        present = {pod.metadata.name for pod in pods}
        async for item in recorded_logs(job, state, query, present):
            yield item
    elif not pods:
        yield Marker(f"{state.name} has no pods now: {describe(state)}", state.status.attempt)
    containers = [(pod, container) for pod in pods for container in containers_of(state, pod, query)]
    views = [view_of(pod, container) for pod, container in containers]
    if pods and not any(view.has_started for view in views):
        yield Marker(f"{state.name} has not started to write: {describe(state)}", state.status.attempt)
    sources = [
        source_of(state, pod, container)
        for (pod, container), view in zip(containers, views, strict=True)
        if _has_log(view.restarts, query)
    ]
    if len(sources) > query.max_requests:
        raise TooManyLogsError(too_many(state, len(sources), query))
    readers = [_Reader(job.client, source, query) for source in sources]
    try:
        async for block in _merged(readers):
            yield block
    finally:
        for reader in readers:
            reader.task.cancel()
        if readers:
            await asyncio.wait([reader.task for reader in readers])


def _has_log(restarts: int, query: LogQuery) -> bool:
    return restarts > 0 or not query.previous


async def _merged(readers: list[_Reader]) -> AsyncGenerator[LogBlock, None]:
    """Yield the lines of all in order of time, as many of one reader at a time as come in a row."""
    heap: list[tuple[datetime, int, _Reader]] = []
    for order, reader in enumerate(readers):
        if await reader.has_line():
            heap.append((reader.time, order, reader))
    heapq.heapify(heap)
    while heap:
        _, order, reader = heapq.heappop(heap)
        yield reader.take(heap[0][0] if heap else None)
        if await reader.has_line():
            heapq.heappush(heap, (reader.time, order, reader))


class _Reader:
    """The lines of one container, with the time of the next one."""

    def __init__(self, client: Client, source: Source, query: LogQuery) -> None:
        self._source = source
        self._queue: asyncio.Queue[LogItem | None] = asyncio.Queue(QUEUED_BLOCKS)
        self._lines: list[bytes] = []
        self._position = 0
        self.time = _LONG_AGO
        self._log = ContainerLog(
            client,
            source,
            emit=self._queue.put,
            since=since_of(client, query),
            tail=query.tail,
        )
        self.task = asyncio.create_task(self._read(previous=query.previous))

    async def _read(self, *, previous: bool) -> None:
        try:
            await self._log.read_all(previous=previous)
        except errors.NotFoundError:
            # The pod went away since it was listed.
            await self._queue.put(None)
        except errors.KubeError:
            await self._queue.put(None)
            raise
        await self._queue.put(None)

    async def has_line(self) -> bool:
        """Wait for the next line; False at the end. Raises KubeError."""
        while self._position == len(self._lines):
            block = await self._queue.get()
            if not isinstance(block, LogBlock):
                await self.task
                return False
            self._lines, self._position = block.stamped[:-1].split(b"\n"), 0
        self._look()
        return True

    def take(self, before: datetime | None) -> LogBlock:
        """Return the next line and those after it that are not later than `before`."""
        start = self._position
        if before is None:
            self._position = len(self._lines)
        else:
            self._position += 1
            while self._position < len(self._lines):
                self._look()
                if self.time > before:
                    break
                self._position += 1
        lines = self._lines[start : self._position]
        return LogBlock(self._source.rank, self._source.attempt, b"\n".join((*lines, b"")))

    def _look(self) -> None:
        """Note the time of the next line; one without a time belongs to the line before it."""
        if time := time_of(self._lines[self._position]):
            self.time = time
