"""Sends everything about one job over one connection, since a browser has six per site.

job      the job, after each change
ranks    its ranks: first all, then changed and deleted ranks
activity spans of each rank over time, from recorders and logs
record   attempts and progress from the operator's record
events   all events
explain  the explanation of the job's state
points   new points of the curves, from the log of the first worker
lines    log lines of all ranks
marker   a note about the log, such as a restart
trouble  an error of the connection or of a log
gone     the job was deleted
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import Pod
from paddlejob.client.errors import ClientError, sentence
from paddlejob.client.job import Job, JobEvent, Jobs, JobWithPods
from paddlejob.client.logs import training_metrics
from paddlejob.client.logs.model import LogBlock, LogQuery
from paddlejob.client.logs.training_metrics import Metrics
from paddlejob.client.ranks import processes_per_pod
from paddlejob.dashboard.activity import Activity, LogActivity, activity_of
from paddlejob.dashboard.rows import detail_of, events_of, lines_of, rank_of, record_of
from paddlejob.dashboard.sse import Message, Outbox
from paddlejob.kube.errors import KubeError

LINES_AT_FIRST = 20_000
"""Number of earlier log lines that a new page gets, for all ranks together."""
MIN_LINES, MAX_LINES = 50, 5_000
EVENTS_SECONDS = 5.0
EVENTS_A_SECOND = 1_000
"""Maximum rate of listed events: the API server returns the events of all pods of the namespace."""
MAX_EVENTS = 1_000
"""Maximum number of pod events on a page. The newest are kept, and all events of the job itself."""
BATCH_SECONDS = 0.1
_OWN = f"{names.KIND}/"
PODS_A_SECOND = 5_000
"""Maximum rate of scanned pods: the page of a job with 10,000 pods is updated every two seconds."""


async def job_stream(
    job: Job, *, with_logs: bool, records: Jobs | None = None
) -> AsyncGenerator[Message, None]:
    """Yield the messages of a job until closed. `records` has earlier attempts."""
    stream = _JobStream(copy.copy(job), records)
    # Users who may not list pods still see the job.
    yield Message("job", detail_of(job.namespace, job.name, job.state))
    parts: list[Coroutine[Any, Any, None]] = [stream.watch_job(), stream.send_events(), stream.send_points()]
    if with_logs:
        parts.append(stream.send_logs())
    tasks = [asyncio.create_task(stream.run_part(each)) for each in parts]
    try:
        while True:
            yield await stream.outbox.get()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class _JobStream:
    def __init__(self, job: Job, records: Jobs | None) -> None:
        self._job = job
        self._records = records
        self._ranks: dict[str, tuple[Pod, JsonObject]] = {}
        self._processes = 0
        """The number of processes in each pod, which the ranks show."""
        self._logs = LogActivity()
        self.outbox = Outbox()
        self._changed = asyncio.Event()
        """Set when the job has changed."""
        self._is_over = False

    async def run_part(self, work: Coroutine[Any, Any, None]) -> None:
        """Run one part. The page shows its error, and the other parts continue."""
        try:
            await work
        except (ClientError, KubeError) as error:
            await self._put("trouble", sentence(error))

    async def _put(self, event: str, data: Any) -> None:
        await self.outbox.put(Message(event, data))

    async def watch_job(self) -> None:
        """Send the job and its ranks after each change."""
        async with aclosing(self._job.watch_with_pods()) as updates:
            async for current in updates:
                await self._send_job(current)
                await asyncio.sleep(max(BATCH_SECONDS, len(current.pods) / PODS_A_SECOND))
        # The watch ends when a local run is over or a job is deleted.
        if not self._is_over:
            await self._put("gone", None)

    async def _send_job(self, current: JobWithPods) -> None:
        self._is_over = current.state.status.phase.is_terminal
        detail = detail_of(self._job.namespace, self._job.name, self._job.state)
        await self._put("job", {**detail, "trouble": current.trouble})
        await self._send_ranks(current)
        self._changed.set()

    async def _send_ranks(self, current: JobWithPods) -> None:
        before, self._ranks, changed = self._ranks, {}, []
        # The number of processes may become known while no pod changes.
        processes, self._processes = self._processes, processes_per_pod(current.state)
        for pod in current.pods:
            name, known = pod.metadata.name, before.get(pod.metadata.name)
            if known is None or known[0] is not pod or self._processes != processes:
                fresh = rank_of(current.state, pod)
                if known is None or known[1] != fresh:
                    changed.append(fresh)
                known = (pod, fresh)
            self._ranks[name] = known
        gone = [rank["rank"] for name, (_, rank) in before.items() if name not in self._ranks]
        if changed or gone:
            await self._put("ranks", {"changed": changed, "gone": gone})

    async def send_events(self) -> None:
        """Send events and the explanation after each change, and pod events also in between."""
        events: Any = None
        activity: Activity = {}
        explained: Any = None
        before: Any = None
        while True:
            try:
                async with asyncio.timeout(EVENTS_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                if self._is_over:
                    continue
            self._changed.clear()
            happened = await self._job.events()
            found = events_of(_newest(happened))
            if found != events:
                events = found
                await self._put("events", events)
            did = await activity_of(self._job, happened, self._logs)
            if did != activity:
                activity = did
                await self._put("activity", did)
            status = self._job.state.status
            reasons = (status.phase, status.reason, status.message, status.attempt)
            if reasons != before:
                if before is None or before[-1] != status.attempt:
                    await self._send_record()
                before = reasons
                explanation = (await copy.copy(self._job).explain()).to_dict()
                if explanation != explained:
                    explained = explanation
                    await self._put("explain", explained)
            await asyncio.sleep(len(happened) / EVENTS_A_SECOND)

    async def _send_record(self) -> None:
        """Send the record of earlier attempts if there is one."""
        if self._records is None:
            return
        try:
            record = await self._records.record(self._job.name)
        except (ClientError, KubeError):
            return
        await self._put("record", record_of(record))

    async def send_points(self) -> None:
        """Send the points of the curves; earlier points are in the record."""
        metrics = Metrics()
        query = self._query(training_metrics.RANK, training_metrics.MAX_LINES, recorded=False)
        async with aclosing(copy.copy(self._job).logs(query)) as items:
            async for item in items:
                for line in item.lines():
                    metrics.feed(line)
                if metrics.points:
                    await self._put("points", metrics.points)
                    metrics.points = []

    async def send_logs(self) -> None:
        """Send the log lines of all ranks."""
        ranks = sum(spec.replicas for _, spec in self._job.state.spec.roles()) or 1
        tail = max(MIN_LINES, min(MAX_LINES, LINES_AT_FIRST // ranks))
        async with aclosing(copy.copy(self._job).logs(self._query("all", tail))) as items:
            async for item in items:
                if isinstance(item, LogBlock):
                    lines = list(item.lines())
                    for line in lines:
                        self._logs.feed(line)
                    await self._put("lines", lines_of(lines))
                else:
                    await self._put("marker", {"text": item.text, "inLog": item.is_part_of_log})
        # Update the activity of a finished job with the last lines.
        self._changed.set()

    def _query(self, rank: str, tail: int, *, recorded: bool = True) -> LogQuery:
        is_over = self._job.state.status.phase.is_terminal
        return LogQuery(rank=rank, tail=tail, follow=not is_over, recorded=recorded)


def _newest(events: Sequence[JobEvent]) -> list[JobEvent]:
    """Return the events of the job and the newest events of its pods."""
    of_pods = [each for each in events if not each.object.startswith(_OWN)]
    left_out = {id(each) for each in of_pods[:-MAX_EVENTS]}
    return [each for each in events if id(each) not in left_out]
