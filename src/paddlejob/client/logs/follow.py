"""Follow the logs of a job, from before its first pod to its end, across all attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.client import ranks
from paddlejob.client.errors import TooManyLogsError
from paddlejob.client.job import describe
from paddlejob.client.logs.container_log import GONE, ContainerLog, ContainerView, Source, container_view
from paddlejob.client.logs.model import LogBlock, LogItem, LogQuery, Marker
from paddlejob.client.logs.process_log import ProcessLog, ended_marker, resolve, source_of_process
from paddlejob.client.logs.window import Window
from paddlejob.client.records import recorded_attempt
from paddlejob.client.watching import Watching, watching_job
from paddlejob.core.pod_set import attempt_of
from paddlejob.history.record import RankEnd
from paddlejob.kube.client import Client
from paddlejob.local.store.logs import chosen_pods

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob

QUEUED_BLOCKS = 64
"""The maximum number of unread blocks. Then the connections apply back pressure to the server."""
ORDER_SECONDS = 2.0
"""How long the lines of a new attempt wait for the last lines of the previous one."""
DRAIN_SECONDS = 5.0
"""How long containers may write after the end of the job."""
GIVE_UP_SECONDS = 30.0
_WAITING = (Phase.NONE, Phase.PENDING, Phase.STARTING, Phase.RESTARTING, Phase.SUSPENDED, Phase.SCALING)


async def follow(job: ClusterJob, query: LogQuery) -> AsyncGenerator[LogItem, None]:
    """Yield lines and markers until the job has ended or is deleted, and no lines are left.

    Raises ClientError and KubeError.
    """
    follower = _Follower(job, query)
    running = asyncio.create_task(follower.run())
    try:
        while (item := await follower.queue.get()) is not None:
            yield item
        await running
    finally:
        running.cancel()
        await asyncio.wait({running})
        await follower.close()


class _Follower:
    def __init__(self, job: ClusterJob, query: LogQuery) -> None:
        self._job = job
        # Resolved once: the number of processes may become known later.
        self._query, self._process = resolve(job.state, query)
        self._client: Client = job.client
        self.queue: asyncio.Queue[LogItem | None] = asyncio.Queue(QUEUED_BLOCKS)
        self._logs: dict[tuple[str, str], ContainerLog | ProcessLog] = {}
        """By the UID of the pod and the name of the container."""
        self._tasks: dict[asyncio.Task[None], int] = {}
        """The readers, each with the attempt of its pod."""
        self._windows: dict[tuple[str, str], Window] = {}
        """By the names of pod and container, which all attempts share."""
        self._attempt = -1
        self._announced = ""
        self._trouble = ""
        self._pods: Watching[Pod] | None = None
        self._is_first_check = True

    async def run(self) -> None:
        """Read everything into the queue. None marks the end, also before an error."""
        try:
            await self._run()
        except Exception:
            await self.queue.put(None)
            raise
        await self.queue.put(None)

    async def close(self) -> None:
        """Stop all readers."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self) -> None:
        job = self._job
        key, uid = ObjectKey(job.namespace, job.name), job.state.metadata.uid
        followed = watching_job(self._client, job.namespace, job.name, pod_selector=job.pod_selector)
        async with followed as (jobs, self._pods):
            while True:
                state = jobs.objects.get(key)
                if state is None or state.metadata.uid != uid:
                    await self._announce("was deleted")
                    break
                await self._check_pods(state)
                await self._announce_trouble(jobs.trouble or self._pods.trouble)
                if state.status.phase.is_terminal:
                    await self._add_recorded(state)
                    break
                await jobs.next_change()
            await self._drain(jobs)

    async def _check_pods(self, state: PaddleJob) -> None:
        """Start readers for new containers, wake the existing ones, and emit the job's state."""
        assert self._pods is not None
        self._check_tasks()
        for log in self._logs.values():
            log.wake()
        await self._announce_restart_in_place(state)
        present = ranks.in_order(state, self._pods.objects)
        for pod in ranks.select(state, present, self._query.rank):
            for container in containers_of(state, pod, self._query):
                if (pod.metadata.uid, container) not in self._logs:
                    await self._start(state, pod, container)
        self._is_first_check = False
        if state.status.phase in _WAITING:
            await self._announce(f"is {describe(state)}")

    async def _start(self, state: PaddleJob, pod: Pod, container: str) -> None:
        if len(self._tasks) >= self._query.max_requests:
            raise TooManyLogsError(too_many_logs(state, len(self._tasks) + 1, self._query))
        attempt = attempt_of(pod)
        await self._announce_attempt(state, attempt)
        log = await self._reader(pod, source_of(state, pod, container))
        self._logs[pod.metadata.uid, container] = log
        self._tasks[asyncio.create_task(log.run())] = attempt

    async def _reader(self, pod: Pod, source: Source) -> ContainerLog | ProcessLog:
        def view() -> ContainerView:
            return self._view(pod, source.container)

        tail = self._query.tail if self._is_first_check else None
        if self._process is not None:
            if not view().is_over:
                return ProcessLog(
                    self._client,
                    source_of_process(source, self._process),
                    self._process,
                    view=view,
                    emit=self.queue.put,
                    trouble=self._on_trouble,
                    tail=tail,
                )
            await self.queue.put(ended_marker(source, self._process))
        key = (source.pod, source.container)
        log = ContainerLog(
            self._client,
            source,
            view=view,
            emit=self.queue.put,
            trouble=self._on_trouble,
            window=self._windows.get(key),
            since=since_of(self._client, self._query),
            tail=tail,
        )
        self._windows[key] = log.window
        return log

    async def _add_recorded(self, state: PaddleJob) -> None:
        """Read the operator's record if the logs were deleted before they could be read."""
        if not self._logs:
            async for item in recorded_logs(self._job, state, self._query, ()):
                await self.queue.put(item)

    def _view(self, pod: Pod, container: str) -> ContainerView:
        assert self._pods is not None
        current = self._pods.objects.get(pod.metadata.key)
        if current is None or current.metadata.uid != pod.metadata.uid:
            return GONE
        return container_view(current, container)

    async def _announce_attempt(self, state: PaddleJob, attempt: int) -> None:
        if attempt <= self._attempt:
            return
        if self._attempt >= 0:
            earlier = [task for task, number in self._tasks.items() if number < attempt and not task.done()]
            if earlier:
                await asyncio.wait(earlier, timeout=ORDER_SECONDS)
            await self.queue.put(Marker(f"attempt {attempt}: {_cause(state)}", attempt))
        self._attempt = attempt

    async def _announce_restart_in_place(self, state: PaddleJob) -> None:
        attempt = state.status.process_attempt
        if attempt <= max(state.status.base_attempt, self._attempt):
            return
        if not self._is_first_check:
            await self.queue.put(Marker(f"attempt {attempt}: {_cause(state)}", attempt))
        self._attempt = attempt

    async def _announce(self, state: str) -> None:
        """Emit a marker with the job's state, once until it changes."""
        if state != self._announced:
            self._announced = state
            await self.queue.put(
                Marker(f"{self._job.name} {state}", max(self._attempt, 0), is_part_of_log=False)
            )

    def _on_trouble(self, text: str) -> None:
        self._trouble = text

    async def _announce_trouble(self, watch_trouble: str) -> None:
        trouble = watch_trouble or self._trouble
        if trouble:
            await self._announce(f"cannot be followed right now: {trouble}; trying again")
        elif "cannot be followed right now" in self._announced:
            await self._announce("is followed again")

    def _check_tasks(self) -> None:
        """Raise the error of a reader that failed."""
        for task in [task for task in self._tasks if task.done()]:
            del self._tasks[task]
            task.result()

    async def _drain(self, jobs: Watching[PaddleJob]) -> None:
        """Read until all containers have ended. Containers that keep running are read up to now."""
        loop = asyncio.get_running_loop()
        finish_at, give_up_at = loop.time() + DRAIN_SECONDS, loop.time() + DRAIN_SECONDS + GIVE_UP_SECONDS
        while self._tasks and loop.time() < give_up_at:
            self._check_tasks()
            for log in self._logs.values():
                if loop.time() >= finish_at:
                    log.finish()
                else:
                    log.wake()
            await jobs.next_change(min(1.0, max(0.01, finish_at - loop.time())))
        if self._tasks:
            await self._announce("has ended, but not all of its logs could be read completely")


def source_of(state: PaddleJob, pod: Pod, container: str) -> Source:
    """Return the source of a container's log, and its name in the stream."""
    rank = ranks.rank_of(state.name, pod.metadata.name)
    is_training = container == ranks.training_container(state, pod)
    return Source(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        container=container,
        rank=rank if is_training else f"{rank}/{container}",
        attempt=attempt_of(pod),
    )


def containers_of(state: PaddleJob, pod: Pod, query: LogQuery) -> list[str]:
    """Return the containers of a pod that the query selects."""
    if query.all_containers:
        statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
        return [status.name for status in statuses]
    return [query.container or ranks.training_container(state, pod)]


def since_of(client: Client, query: LogQuery) -> str:
    """Return the time of the first wanted line by the API server's clock; empty for all lines."""
    now = client.server_now()
    if query.since_seconds is None or now is None:
        return ""
    return (now - timedelta(seconds=query.since_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def too_many_logs(state: PaddleJob, count: int, query: LogQuery) -> str:
    """Return the error message for a query with too many logs."""
    limit = query.max_requests
    return f"{state.name} has more than {limit} logs to read at a time ({count}); choose a rank or a role"


def _cause(state: PaddleJob) -> str:
    failure = state.status.last_failure
    if failure is not None and failure.attempt == state.status.attempt - 1:
        return f"restarted after {failure.message}"
    return state.status.message or state.status.reason or str(state.status.phase)


async def recorded_logs(
    job: ClusterJob, state: PaddleJob, query: LogQuery, present: Collection[str]
) -> AsyncGenerator[LogItem, None]:
    """Yield a marker and the recorded last lines of a finished job's pods that are not `present`.

    If there is neither a record nor a pod, the marker reports that the logs were deleted.
    """
    wanted = chosen_pods(state.name, query.rank, ranks.wanted(state))
    missing = [pod for pod in wanted if pod not in present]
    is_recorded = query.recorded and not (query.previous or query.container)
    attempt = (
        await recorded_attempt(job.client, state, state.status.attempt) if missing and is_recorded else None
    )
    ends = [each for each in (attempt.ranks if attempt else ()) if f"{state.name}-{each.rank}" in missing]
    blocks = [block for end in ends if (block := _block(end, state, query, job.client.server_now()))]
    if blocks:
        pods = "pod was" if len(missing) == 1 else "pods were"
        source = f"{len(missing)} {pods} deleted; the last lines are from the operator's record"
        yield Marker(source, state.status.attempt)
    elif not present:
        gone = f"the logs of {state.name} were deleted with its pods; spec.cleanPodPolicy: Never keeps them"
        yield Marker(gone, state.status.attempt)
    for block in blocks:
        yield block


def _block(end: RankEnd, state: PaddleJob, query: LogQuery, now: datetime | None) -> LogBlock | None:
    """Return the lines that the query selects, all with the time when the rank ended."""
    time = end.time or state.status.completion_time
    lines = end.text.splitlines()
    lines = lines[max(0, len(lines) - query.tail) :] if query.tail is not None else lines
    if not lines or time is None:
        return None
    if now and query.since_seconds and now - time > timedelta(seconds=query.since_seconds):
        return None
    stamp = time.isoformat()
    stamped = "".join(f"{stamp} {line}\n" for line in lines)
    return LogBlock(end.rank, state.status.attempt, stamped.encode())
