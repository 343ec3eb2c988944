"""Reads training progress and idle GPUs from the newest log lines of worker 0.

The rate of reads is limited, in total and for each namespace. No decision depends on the results, so they are
written separately from the reconciler and may be lost.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from contextlib import suppress
from datetime import datetime

from paddlejob.api.meta import ObjectKey
from paddlejob.api.names import Reason
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase, RoleSpec, TrainingProgress
from paddlejob.core.accelerators import idle_accelerators
from paddlejob.core.actions import Event, EventType
from paddlejob.core.pod_set import pod_name, training_container_name, worker_of
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.workqueue import WorkQueue
from paddlejob.operator.reports.pod_log import REFUSED_SECONDS, LogReader
from paddlejob.operator.reports.watchdog import RecordEvent
from paddlejob.operator.reports.writer import ProgressWriter
from paddlejob.operator.state import ClusterState
from paddlejob.training.epochs import StepCounter
from paddlejob.training.findings import IdleAccelerators
from paddlejob.training.log_lines import Tracker, training_progress
from paddlejob.training.steps import declared_total

log = logging.getLogger(__name__)

MAX_READS = 12
"""Number of concurrent reads; namespaces share them."""
SLOT_SECONDS = 2.0
"""Minimum time that a read occupies a reader, which bounds the rate."""
READ_SECONDS = 3.0
"""Minimum time between two reads of a job's log."""
CATCH_UP_SECONDS = 3.0
"""Maximum delay of a restart while the last lines of a log are read."""
TAIL_LINES = 200
KEEP_BYTES = 65536


class _FollowedLog:
    """The log of one job."""

    def __init__(self, pod: Pod, restarts: tuple[int, int], counter: StepCounter) -> None:
        self.pod_uid = pod.metadata.uid
        self.restarts = restarts
        """Attempt of the program, and number of restarts of its container by the kubelet."""
        self.tracker = Tracker(counter)
        self.newest = -math.inf
        """Time of the newest line by the clock of its node; only compared with other lines."""
        self.newest_read = -math.inf
        """Monotonic time at which that line was read."""
        self.is_final = False
        self.refused_until = -math.inf
        """Monotonic time until which the log is not requested after a 403."""
        self.idle = ""
        """Message about accelerators of the pod that are idle."""

    def feed(self, text: str, now: float) -> None:
        """Parse the lines that are newer than the previous ones; `now` is the monotonic time."""
        last = self.newest
        for line in text.splitlines():
            moment, _, text_of_line = line.partition(" ")
            with suppress(ValueError):
                time = datetime.fromisoformat(moment).timestamp()
                if time > last:
                    self.newest, self.newest_read = time, now
                    self.tracker.feed(text_of_line, time)

    def progress(self, now: float) -> TrainingProgress | None:
        """Return the progress at the newest line, without a remaining time if the log has become silent."""
        silent = self.newest + now - self.newest_read
        return training_progress(self.tracker, silent if self.tracker.is_silent(silent) else self.newest)


class ProgressReader:
    """Reads the logs of all running jobs."""

    def __init__(
        self, client: Client, state: ClusterState, writer: ProgressWriter, record_event: RecordEvent
    ) -> None:
        self._logs = LogReader(client)
        self._state = state
        self._writer = writer
        self._record_event = record_event
        self._followed: dict[ObjectKey, _FollowedLog] = {}
        self._queue: WorkQueue[ObjectKey] = WorkQueue(
            rng=random.Random(0),  # noqa: S311  (nothing is retried)
            group_of=lambda key: key.namespace,
            workers=MAX_READS,
        )
        self._queued: set[ObjectKey] = set()
        """Jobs that are queued or being read."""

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_READS):
                group.create_task(self._reader())
            while True:
                for key in self._due():
                    if key not in self._queued:
                        self._queued.add(key)
                        self._queue.add(key)
                await asyncio.sleep(READ_SECONDS)

    async def _reader(self) -> None:
        clock = asyncio.get_running_loop().time
        while (key := await self._queue.get()) is not None:
            began = clock()
            if await self._try_read(key):
                await asyncio.sleep(began + SLOT_SECONDS - clock())
            self._queued.discard(key)
            self._queue.done(key)

    async def catch_up(self, key: ObjectKey) -> None:
        """Read the log of a job once, before a decision that uses its progress."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self._try_read(key)

    async def _try_read(self, key: ObjectKey) -> bool:
        """Read the log of a job; return whether a request was made."""
        try:
            return await self._follow(key)
        except errors.KubeError as error:
            # For example a container that is being created or an unreachable node; it is read again later.
            log.debug("%s: cannot read progress: %s", key, error)
        except Exception:
            log.exception("%s: bug in the operator; its progress is read again later", key)
        return True

    def _due(self) -> list[ObjectKey]:
        """Return running jobs, and ended jobs that must be read once more; forget deleted jobs."""
        jobs = {job.metadata.key: job for job in self._state.jobs}
        for key in [key for key in self._followed if key not in jobs]:
            del self._followed[key]
        return [key for key, job in jobs.items() if self._is_due(key, job)]

    def _is_due(self, key: ObjectKey, job: PaddleJob) -> bool:
        if self._writer.knows_all(key):
            return False
        if job.status.phase is Phase.RUNNING:
            return True
        followed = self._followed.get(key)
        return followed is not None and not followed.is_final and job.status.phase.is_terminal

    async def _follow(self, key: ObjectKey) -> bool:
        job = self._state.job(key)
        if job is None or job.spec.worker is None:
            return False
        name = pod_name(key.name, worker_of(job.status, 0))
        pod, followed = self._state.pods.get(ObjectKey(key.namespace, name)), self._followed.get(key)
        if pod is None or pod.metadata.controller_uid != job.metadata.uid:
            if followed is not None:
                # An ended job gets no new pod.
                followed.is_final = job.status.phase.is_terminal
            return False
        attempt = self._state.process_attempt(job, pod)
        restarts = (attempt, _restarts(pod, training_container_name(job.spec.worker)))
        if followed is None or followed.pod_uid != pod.metadata.uid:
            followed = self._followed[key] = _FollowedLog(
                pod, restarts, _step_counter(job, attempt, followed)
            )
        elif followed.restarts != restarts:
            followed.restarts = restarts
            followed.tracker.restart()
        if asyncio.get_running_loop().time() < followed.refused_until or not self._logs.may_read(pod):
            return False
        # The outline of a job has no resource requests, which matter only while the job runs.
        whole = job if job.status.phase.is_terminal else await self._state.with_templates(job)
        await self._read(job, whole.spec.worker or job.spec.worker, pod, followed)
        return True

    async def _read(self, job: PaddleJob, worker: RoleSpec, pod: Pod, followed: _FollowedLog) -> None:
        followed.is_final = ended = job.status.phase.is_terminal
        try:
            text = await self._logs.read_end(
                pod,
                training_container_name(worker),
                lines=TAIL_LINES,
                keep_bytes=KEEP_BYTES,
                timestamps=True,
            )
        except errors.ForbiddenError:
            followed.refused_until = asyncio.get_running_loop().time() + REFUSED_SECONDS
            raise
        now = asyncio.get_running_loop().time()
        followed.tracker.total = declared_total(job)
        followed.feed(text, now)
        if not followed.idle and (idle := idle_accelerators(worker, text)):
            followed.idle = f"{worker_of(job.status, 0)} {idle}"
            found = IdleAccelerators(pod.metadata.uid, followed.idle)
            self._state.note(job.metadata.key, IdleAccelerators, found)
            self._record_event(job, Event(EventType.WARNING, Reason.IDLE_ACCELERATORS, followed.idle))
        if (reported := followed.progress(now)) is not None:
            self._writer.add_logged(job, pod, reported, at_once=ended)


def _restarts(pod: Pod, container: str) -> int:
    return sum(each.restart_count for each in pod.status.container_statuses if each.name == container)


def _step_counter(job: PaddleJob, attempt: int, earlier: _FollowedLog | None) -> StepCounter:
    """Return the counter of an earlier pod of the job, or one that continues from its status."""
    progress = job.status.progress
    counter = earlier.tracker.counter if earlier else StepCounter.from_status(progress)
    if earlier or progress is None or progress.attempt != attempt:
        counter.restart()
    return counter
