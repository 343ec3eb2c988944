"""Reads the lines that the ranks of a job have written so far, in order of time.

The lines of deleted pods come from the operator's record. `first_error` finds the rank that failed first.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from paddlejob.api.meta import LONG_AGO
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Failure, PaddleJob
from paddlejob.client import ranks
from paddlejob.client.errors import ClientError, TooManyLogsError
from paddlejob.client.job import FirstError, describe
from paddlejob.client.logs.container_log import ContainerLog, Source, container_view
from paddlejob.client.logs.follow import containers_of, recorded_logs, since_of, source_of, too_many_logs
from paddlejob.client.logs.model import LogBlock, LogItem, LogQuery, Marker, time_of
from paddlejob.client.logs.process_log import Process, ProcessLog, ended_marker, resolve, source_of_process
from paddlejob.client.records import RecordedLog, recorded_log
from paddlejob.core.attempts.processes import is_supervised
from paddlejob.core.pod_set import attempt_of
from paddlejob.kube import errors
from paddlejob.kube.client import Client

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob

QUEUED_BLOCKS = 4
READ_LINES = 5000
SHOWN_LINES = 100
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


async def history(job: ClusterJob, query: LogQuery) -> AsyncGenerator[LogItem, None]:
    """Yield the lines of all containers that have started, or the lines before the last restart.

    For deleted pods of a finished job, the operator's record is used. Raises ClientError and KubeError.
    """
    state = await job.refresh()
    query, process = resolve(state, query)
    pods = ranks.select(state, await job.pods(), query.rank)
    if state.status.phase.is_terminal:
        present = {pod.metadata.name for pod in pods}
        async for item in recorded_logs(job, state, query, present):
            yield item
    elif not pods:
        yield Marker(f"{state.name} has no pods now: {describe(state)}", state.status.attempt)
    containers = [(pod, container) for pod in pods for container in containers_of(state, pod, query)]
    views = [container_view(pod, container) for pod, container in containers]
    if pods and not any(view.has_started for view in views):
        yield Marker(f"{state.name} has not started to write: {describe(state)}", state.status.attempt)
    sources = [
        source_of(state, pod, container)
        for (pod, container), view in zip(containers, views, strict=True)
        if not query.previous or view.restarts > 0 or _restarted_in_place(state, pod)
    ]
    restarted = {pod.metadata.name for (pod, _), view in zip(containers, views, strict=True) if view.restarts}
    if len(sources) > query.max_requests:
        raise TooManyLogsError(too_many_logs(state, len(sources), query))
    # A supervisor ends its container with the job, which the kubelet reports a moment later.
    is_ending = state.status.phase.is_terminal and any(is_supervised(pod) for pod, _ in containers[:1])
    if process and sources and (is_ending or not views[0].is_running):
        if views[0].has_started:
            yield ended_marker(sources[0], process)
        process = None
    readers = [
        _Reader(job.client, source, query, process, in_place=source.pod not in restarted)
        for source in sources
    ]
    try:
        async for block in _merge(readers):
            yield block
    finally:
        for reader in readers:
            reader.task.cancel()
        if readers:
            await asyncio.wait([reader.task for reader in readers])


def _restarted_in_place(state: PaddleJob, pod: Pod) -> bool:
    return is_supervised(pod) and state.status.process_attempt > attempt_of(pod)


async def _merge(readers: list[_Reader]) -> AsyncGenerator[LogBlock, None]:
    """Yield the lines of all readers in order of time. Consecutive lines of one reader form a block."""
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

    def __init__(
        self, client: Client, source: Source, query: LogQuery, process: Process | None, *, in_place: bool
    ) -> None:
        """`in_place` is for a container whose earlier programs have the same log."""
        self._source = source if process is None else source_of_process(source, process)
        self._queue: asyncio.Queue[LogItem | None] = asyncio.Queue(QUEUED_BLOCKS)
        self._kept: dict[int, list[bytes]] = {}
        """Lines of the last two attempts."""
        self._attempt = source.attempt
        self._lines: list[bytes] = []
        self._position = 0
        self.time = LONG_AGO
        emit, tail = self._queue.put, query.tail
        if query.previous and in_place:
            log = ContainerLog(client, source, emit=self._keep, since=since_of(client, query))
            read_all = partial(self._read_earlier, log, tail)
        elif process is None:
            log = ContainerLog(client, source, emit=emit, since=since_of(client, query), tail=tail)
            read_all = partial(log.read_all, previous=query.previous)
        else:
            read_all = partial(ProcessLog(client, self._source, process, emit=emit, tail=tail).read_all)
        self.task = asyncio.create_task(self._read(read_all))

    async def _read(self, read_all: Callable[[], Awaitable[None]]) -> None:
        try:
            await read_all()
        except errors.NotFoundError:
            # The pod was deleted after it was listed.
            await self._queue.put(None)
        except (ClientError, errors.KubeError):
            await self._queue.put(None)
            raise
        await self._queue.put(None)

    async def _keep(self, item: LogItem) -> None:
        assert isinstance(item, LogBlock)
        self._kept.setdefault(item.attempt, []).append(item.stamped)
        self._kept = dict([*self._kept.items()][-2:])

    async def _read_earlier(self, log: ContainerLog, tail: int | None) -> None:
        """Read the lines of the program before the last one; the API server knows only containers."""
        await log.read_all()
        for attempt in [*self._kept][:-1]:
            lines = b"".join(self._kept[attempt]).splitlines(keepends=True)
            chosen = b"".join(lines if tail is None else lines[max(0, len(lines) - tail) :])
            if chosen:
                await self._queue.put(LogBlock(self._source.rank, attempt, chosen))

    async def has_line(self) -> bool:
        """Wait for the next line. Return False at the end. Raises KubeError."""
        while self._position == len(self._lines):
            block = await self._queue.get()
            if not isinstance(block, LogBlock):
                await self.task
                return False
            self._attempt = block.attempt
            self._lines, self._position = block.stamped[:-1].split(b"\n"), 0
        self._read_time()
        return True

    def take(self, before: datetime | None) -> LogBlock:
        """Return the next line and the following ones up to the time `before`."""
        start = self._position
        if before is None:
            self._position = len(self._lines)
        else:
            self._position += 1
            while self._position < len(self._lines):
                self._read_time()
                if self.time > before:
                    break
                self._position += 1
        lines = self._lines[start : self._position]
        return LogBlock(self._source.rank, self._attempt, b"\n".join((*lines, b"")))

    def _read_time(self) -> None:
        """Store the time of the next line. A line without a time has the time of the line before it."""
        if time := time_of(self._lines[self._position]):
            self.time = time


async def first_error(job: ClusterJob) -> FirstError | None:
    """Return the first failure in the status, with the last lines of that rank's log or record."""
    failure = (await job.refresh()).status.last_failure
    if failure is None:
        return None
    rank = ranks.rank_of(job.name, failure.pod)
    lines, note = await _last_lines(job, rank, failure)
    shown = tuple(from_traceback(lines))
    return FirstError(rank, failure.message, failure.exit_code, failure.attempt, shown, note)


async def _last_lines(job: ClusterJob, rank: str, failure: Failure) -> RecordedLog:
    found = next((each for each in await job.pods() if each.metadata.name == failure.pod), None)
    in_place = found is not None and _restarted_in_place(job.state, found)
    if found is None or (attempt_of(found) != failure.attempt and not in_place):
        return await recorded_log(job.client, job.state, failure)
    view = container_view(found, ranks.training_container(job.state, found))
    # Other programs may have written any number of lines to the same log since.
    tail = None if in_place else READ_LINES
    query = LogQuery(rank=rank, tail=tail, previous=view.is_running and view.restarts > 0)
    try:
        written = [line async for block in history(job, query) for line in block.lines()]
    except errors.NotFoundError:
        return await recorded_log(job.client, job.state, failure)
    own = (line for line in written if line.rank and (not in_place or line.attempt == failure.attempt))
    lines = tuple(line.text for line in own)[-READ_LINES:]
    return RecordedLog(lines, "" if lines else silent(rank))


def silent(rank: str) -> str:
    """Return the sentence for a rank without output."""
    return f"{rank} wrote nothing to its log"


def from_traceback(lines: Sequence[str]) -> list[str]:
    """Return the last traceback, with its chained ones, and all lines after it; else the last lines."""
    starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    if not starts:
        return list(lines[-SHOWN_LINES:])
    first = starts.pop()
    while starts and any(line.strip() in _CHAINED for line in lines[starts[-1] : first]):
        first = starts.pop()
    return list(lines[first:])
