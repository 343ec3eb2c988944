"""The logs of a job as they are written: from before its first pod to its end, over all attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import TYPE_CHECKING

from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.client import ranks
from paddlejob.client.errors import TooManyLogsError
from paddlejob.client.job import describe
from paddlejob.client.logs.container_log import GONE, ContainerLog, Source, View, view_of
from paddlejob.client.logs.model import LogItem, LogQuery, Marker
from paddlejob.client.logs.recorded import recorded_logs
from paddlejob.client.logs.window import Window
from paddlejob.client.watching import Watching, watching_job
from paddlejob.kube.client import Client

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob

QUEUED_BLOCKS = 64
"""What is read and not yet taken; more than that is left to the connections, which then slow the server."""
ORDER_SECONDS = 2.0
"""How long the lines of a new attempt wait for the last ones of the attempt before."""
DRAIN_SECONDS = 5.0
"""How long after the end of a job its containers may still write."""
GIVE_UP_SECONDS = 30.0
_WAITING = (Phase.NONE, Phase.PENDING, Phase.STARTING, Phase.RESTARTING, Phase.SUSPENDED, Phase.SCALING)


async def follow(job: ClusterJob, query: LogQuery) -> AsyncGenerator[LogItem, None]:
    """Yield lines and markers until the job has ended or is deleted, and all its lines were yielded.

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
        self._query = query
        self._client: Client = job.client
        self.queue: asyncio.Queue[LogItem | None] = asyncio.Queue(QUEUED_BLOCKS)
        self._logs: dict[tuple[str, str], ContainerLog] = {}
        """By the UID of the pod and the name of the container."""
        self._tasks: dict[asyncio.Task[None], int] = {}
        """What reads them, and the attempt that it reads."""
        self._windows: dict[tuple[str, str], Window] = {}
        """By the names of pod and container: attempts use the same ones."""
        self._attempt = -1
        self._told = ""
        self._trouble = ""
        self._pods: Watching[Pod] | None = None
        self._is_first_look = True

    async def run(self) -> None:
        """Read everything into the queue; None is its end, also before an error."""
        try:
            await self._run()
        except Exception:
            await self.queue.put(None)
            raise
        await self.queue.put(None)

    async def close(self) -> None:
        """End all reading."""
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
                    await self._tell("was deleted")
                    break
                await self._look(state)
                await self._tell_trouble(jobs.trouble or self._pods.trouble)
                if state.status.phase.is_terminal:
                    await self._tell_recorded(state)
                    break
                await jobs.next_change()
            await self._drain(jobs)

    async def _look(self, state: PaddleJob) -> None:
        """Start reading what is new, wake who waits for a change, and tell how the job is."""
        assert self._pods is not None
        self._check_tasks()
        for log in self._logs.values():
            log.wake()
        present = ranks.in_order(state, self._pods.objects)
        for pod in ranks.select(state, present, self._query.rank):
            for container in containers_of(state, pod, self._query):
                if (pod.metadata.uid, container) not in self._logs:
                    await self._start(state, pod, container)
        self._is_first_look = False
        if state.status.phase in _WAITING:
            await self._tell(f"is {describe(state)}")

    async def _start(self, state: PaddleJob, pod: Pod, container: str) -> None:
        if len(self._tasks) >= self._query.max_requests:
            raise TooManyLogsError(too_many(state, len(self._tasks) + 1, self._query))
        attempt = ranks.attempt_of(pod)
        await self._tell_attempt(state, attempt)
        source = source_of(state, pod, container)
        key = (pod.metadata.name, container)
        log = ContainerLog(
            self._client,
            source,
            view=lambda: self._view(pod, container),
            emit=self.queue.put,
            trouble=self._on_trouble,
            window=self._windows.get(key),
            since=since_of(self._client, self._query),
            tail=self._query.tail if self._is_first_look else None,
        )
        self._windows[key] = log.window
        self._logs[pod.metadata.uid, container] = log
        self._tasks[asyncio.create_task(log.run())] = attempt

    async def _tell_recorded(self, state: PaddleJob) -> None:
        """Read from the operator's record the logs that were deleted before they could be read."""
        if not self._logs:
            async for item in recorded_logs(self._job, state, self._query, ()):
                await self.queue.put(item)

    def _view(self, pod: Pod, container: str) -> View:
        assert self._pods is not None
        current = self._pods.objects.get(pod.metadata.key)
        if current is None or current.metadata.uid != pod.metadata.uid:
            return GONE
        return view_of(current, container)

    async def _tell_attempt(self, state: PaddleJob, attempt: int) -> None:
        if attempt <= self._attempt:
            return
        if self._attempt >= 0:
            earlier = [task for task, of in self._tasks.items() if of < attempt and not task.done()]
            if earlier:
                await asyncio.wait(earlier, timeout=ORDER_SECONDS)
            await self.queue.put(Marker(f"attempt {attempt}: {_cause(state)}", attempt))
        self._attempt = attempt

    async def _tell(self, what: str) -> None:
        """Tell how the job is, once until it changes."""
        if what != self._told:
            self._told = what
            await self.queue.put(
                Marker(f"{self._job.name} {what}", max(self._attempt, 0), is_part_of_log=False)
            )

    def _on_trouble(self, text: str) -> None:
        self._trouble = text

    async def _tell_trouble(self, of_watches: str) -> None:
        trouble = of_watches or self._trouble
        if trouble:
            await self._tell(f"cannot be followed right now: {trouble}; trying again")
        elif "cannot be followed right now" in self._told:
            await self._tell("is followed again")

    def _check_tasks(self) -> None:
        """Raise what a reader raised."""
        for task in [task for task in self._tasks if task.done()]:
            del self._tasks[task]
            task.result()

    async def _drain(self, jobs: Watching[PaddleJob]) -> None:
        """Read on until all containers have ended; what still runs after a while is read up to now."""
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
            await self._tell("has ended, but not all of its logs could be read completely")


def source_of(state: PaddleJob, pod: Pod, container: str) -> Source:
    """Return what to read, and what to call it."""
    rank = ranks.rank_of(state.name, pod.metadata.name)
    is_training = container == ranks.training_container(state, pod)
    return Source(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        container=container,
        rank=rank if is_training else f"{rank}/{container}",
        attempt=ranks.attempt_of(pod),
    )


def containers_of(state: PaddleJob, pod: Pod, query: LogQuery) -> list[str]:
    """Return the containers of a pod whose logs are wanted."""
    if query.all_containers:
        statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
        return [status.name for status in statuses]
    return [query.container or ranks.training_container(state, pod)]


def since_of(client: Client, query: LogQuery) -> str:
    """Return the time from which lines are wanted, by the API server's clock; empty for all."""
    now = client.server_now()
    if query.since_seconds is None or now is None:
        return ""
    return (now - timedelta(seconds=query.since_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def too_many(state: PaddleJob, count: int, query: LogQuery) -> str:
    """Return why not all logs are read at a time."""
    most = query.max_requests
    return f"{state.name} has more than {most} logs to read at a time ({count}); choose a rank or a role"


def _cause(state: PaddleJob) -> str:
    failure = state.status.last_failure
    if failure is not None and failure.attempt == state.status.attempt - 1:
        return f"restarted after {failure.message}"
    return state.status.message or state.status.reason or str(state.status.phase)
