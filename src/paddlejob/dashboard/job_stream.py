"""Everything about one job over one connection: a browser has only six for a whole site.

job      the job, whenever it changes
ranks    its ranks: all of them first, then those that changed and those that are gone
activity what the ranks did over time, as far as their recorders and logs say
record   attempts and progress of which the pods and events are gone
events   what happened, all of it
explain  why the job is where it is
points   progress of the first worker: new points of the curves
lines    log lines of all ranks
marker   a sentence about the log, such as a restart
trouble  what is wrong with the connection or the log
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
from paddlejob.client.job import Job, JobEvent, Jobs, Look
from paddlejob.client.logs import training_metrics
from paddlejob.client.logs.model import LogBlock, LogQuery
from paddlejob.client.logs.training_metrics import Metrics
from paddlejob.dashboard.activity import Activity, LogActivity, activity_of
from paddlejob.dashboard.rows import detail_of, events_of, lines_of, rank_of, record_of
from paddlejob.dashboard.sse import Message, Outbox
from paddlejob.kube.errors import KubeError

LINES_AT_FIRST = 20_000
"""How many lines a page gets of what was written before it was opened, shared by all ranks."""
FEWEST_LINES, MOST_LINES = 50, 5_000
EVENTS_SECONDS = 5.0
EVENTS_A_SECOND = 1_000
"""Maximum number of events to list: an API server answers with those of all pods of the namespace."""
MOST_EVENTS = 1_000
"""How many events of pods a page gets, the newest; those of the job itself are few."""
BATCH_SECONDS = 0.1
_OWN = f"{names.KIND}/"
PODS_A_SECOND = 5_000
"""Maximum number of pods to scan: the page of a job with 10,000 is refreshed every two seconds."""


async def job_stream(
    job: Job, *, with_logs: bool, records: Jobs | None = None
) -> AsyncGenerator[Message, None]:
    """Yield all about a job until the reader has enough; `records` knows earlier attempts."""
    stream = _JobStream(copy.copy(job), records)
    # Whoever may not see its pods sees the job all the same.
    yield Message("job", detail_of(job))
    parts: list[Coroutine[Any, Any, None]] = [stream.look(), stream.tell_events(), stream.draw()]
    if with_logs:
        parts.append(stream.read_logs())
    tasks = [asyncio.create_task(stream.part(each)) for each in parts]
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
        self._logs = LogActivity()
        self.outbox = Outbox()
        self._seen = asyncio.Event()
        """Set when anything about the job has changed."""
        self._is_over = False

    async def part(self, work: Coroutine[Any, Any, None]) -> None:
        """Do one part; its errors are shown, and the other parts continue."""
        try:
            await work
        except (ClientError, KubeError) as error:
            await self._put("trouble", sentence(error))

    async def _put(self, event: str, data: Any) -> None:
        await self.outbox.put(Message(event, data))

    async def look(self) -> None:
        """Tell how the job and its ranks are."""
        async with aclosing(self._job.looks()) as looks:
            async for look in looks:
                await self._tell(look)
                await asyncio.sleep(max(BATCH_SECONDS, len(look.pods) / PODS_A_SECOND))
        # A local run that is over stays as it is; a job on a cluster was deleted.
        if not self._is_over:
            await self._put("gone", None)

    async def _tell(self, look: Look) -> None:
        self._is_over = look.state.status.phase.is_terminal
        await self._put("job", {**detail_of(self._job), "trouble": look.trouble})
        await self._tell_ranks(look)
        self._seen.set()

    async def _tell_ranks(self, look: Look) -> None:
        before, self._ranks, changed = self._ranks, {}, []
        for pod in look.pods:
            name, known = pod.metadata.name, before.get(pod.metadata.name)
            if known is None or known[0] is not pod:
                fresh = rank_of(look.state, pod)
                if known is None or known[1] != fresh:
                    changed.append(fresh)
                known = (pod, fresh)
            self._ranks[name] = known
        gone = [rank["rank"] for name, (_, rank) in before.items() if name not in self._ranks]
        if changed or gone:
            await self._put("ranks", {"changed": changed, "gone": gone})

    async def tell_events(self) -> None:
        """Tell events and the explanation: after each change, and events of pods also in between."""
        events: Any = None
        activity: Activity = {}
        explained: Any = None
        before: Any = None
        while True:
            try:
                async with asyncio.timeout(EVENTS_SECONDS):
                    await self._seen.wait()
            except TimeoutError:
                if self._is_over:
                    continue
            self._seen.clear()
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
                    await self._tell_record()
                before = reasons
                explanation = (await copy.copy(self._job).explain()).to_dict()
                if explanation != explained:
                    explained = explanation
                    await self._put("explain", explained)
            await asyncio.sleep(len(happened) / EVENTS_A_SECOND)

    async def _tell_record(self) -> None:
        """Tell what is kept of earlier attempts, whose pods and events are gone; it may be nothing."""
        if self._records is None:
            return
        try:
            record = await self._records.record(self._job.name)
        except (ClientError, KubeError):
            return
        await self._put("record", record_of(record))

    async def draw(self) -> None:
        """Send the points of the curves; the page has those of the record."""
        metrics = Metrics()
        query = self._query(training_metrics.RANK, training_metrics.MOST_LINES, recorded=False)
        async with aclosing(copy.copy(self._job).logs(query)) as items:
            async for item in items:
                for line in item.lines():
                    metrics.feed(line)
                if metrics.points:
                    await self._put("points", metrics.points)
                    metrics.points = []

    async def read_logs(self) -> None:
        """Tell the lines of all ranks."""
        ranks = sum(spec.replicas for _, spec in self._job.state.spec.roles()) or 1
        tail = max(FEWEST_LINES, min(MOST_LINES, LINES_AT_FIRST // ranks))
        async with aclosing(copy.copy(self._job).logs(self._query("all", tail))) as items:
            async for item in items:
                if isinstance(item, LogBlock):
                    lines = list(item.lines())
                    for line in lines:
                        self._logs.feed(line)
                    await self._put("lines", lines_of(lines))
                else:
                    await self._put("marker", {"text": item.text, "inLog": item.is_part_of_log})
        # What they tell of a job that is over is not asked for again.
        self._seen.set()

    def _query(self, rank: str, tail: int, *, recorded: bool = True) -> LogQuery:
        is_over = self._job.state.status.phase.is_terminal
        return LogQuery(rank=rank, tail=tail, follow=not is_over, recorded=recorded)


def _newest(events: Sequence[JobEvent]) -> list[JobEvent]:
    """Return the events of a job and the newest of its pods."""
    of_pods = [each for each in events if not each.object.startswith(_OWN)]
    left_out = {id(each) for each in of_pods[:-MOST_EVENTS]}
    return [each for each in events if id(each) not in left_out]
