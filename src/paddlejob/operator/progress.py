"""The progress of jobs, and whether they use their GPUs, read from the newest log lines of their worker 0.

The number of reads a second is bounded, in total and for each namespace. Neither decides anything about a
job, so both are written apart from the reconciler and lost without harm.
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
from paddlejob.api.v1 import PaddleJob, Phase, Role, RoleSpec, TrainingProgress
from paddlejob.core.accelerators import left_idle
from paddlejob.core.actions import Event, EventType
from paddlejob.core.messages import duration
from paddlejob.core.pod_set import Replica, pod_name, training_container_name
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.workqueue import WorkQueue
from paddlejob.operator.pod_log import REFUSED_SECONDS, LogReader
from paddlejob.operator.reports.watchdog import RecordEvent
from paddlejob.operator.reports.writer import ProgressWriter
from paddlejob.operator.state import ClusterState
from paddlejob.progress import Tracker

log = logging.getLogger(__name__)

MAX_READS = 12
"""Number of logs that are read concurrently; namespaces share the readers fairly."""
SLOT_SECONDS = 2.0
"""How long a read occupies a reader at least, which bounds the rate."""
READ_SECONDS = 3.0
"""The shortest time between two reads of a job's log."""
CATCH_UP_SECONDS = 3.0
"""Maximum delay of a restart for the sake of the last lines of a log."""
TAIL_LINES = 50
KEEP_BYTES = 65536


class _Followed:
    """A job whose log is read."""

    def __init__(self, pod_uid: str) -> None:
        self.pod_uid = pod_uid
        self.tracker = Tracker()
        self.newest = -math.inf
        """Time of the newest line, by the clock of its node; compared with that of other lines only."""
        self.is_final = False
        self.refused_until = -math.inf
        """When the log may be asked for again, by the monotonic clock."""
        self.idle = ""
        """What the pod holds and cannot use."""

    def feed(self, text: str) -> None:
        """Take in the lines that are newer than those of the last time."""
        last = self.newest
        for line in text.splitlines():
            moment, _, said = line.partition(" ")
            with suppress(ValueError):
                time = datetime.fromisoformat(moment).timestamp()
                if time > last:
                    self.newest = time
                    self.tracker.feed(said, time)


class ProgressReader:
    """Follows the running jobs of the cluster."""

    def __init__(
        self, client: Client, state: ClusterState, writer: ProgressWriter, record_event: RecordEvent
    ) -> None:
        self._logs = LogReader(client)
        self._state = state
        self._writer = writer
        self._record_event = record_event
        self._followed: dict[ObjectKey, _Followed] = {}
        self._queue: WorkQueue[ObjectKey] = WorkQueue(
            rng=random.Random(0),  # noqa: S311  (nothing is retried)
            group_of=lambda key: key.namespace,
            workers=MAX_READS,
        )
        self._queued: set[ObjectKey] = set()
        """Jobs that wait for a reader or have one."""

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
            if await self._turn(key):
                await asyncio.sleep(began + SLOT_SECONDS - clock())
            self._queued.discard(key)
            self._queue.done(key)

    async def catch_up(self, key: ObjectKey) -> None:
        """Read the log of a job once, before its attempt is judged by its progress."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self._turn(key)

    async def _turn(self, key: ObjectKey) -> bool:
        """Read the log of a job; return whether a server was asked for it."""
        try:
            return await self._follow(key)
        except errors.KubeError as error:
            # A container that is being created, a node out of reach: the next turn comes.
            log.debug("%s: cannot read progress: %s", key, error)
        except Exception:
            log.exception("%s: bug in the operator; its progress is read again later", key)
        return True

    def _due(self) -> list[ObjectKey]:
        """Return the jobs that run, and once more those that have just ended; forget all others."""
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
        job, name = self._state.job(key), pod_name(key.name, Replica(Role.WORKER, 0))
        if job is None or job.spec.worker is None:
            return False
        pod, followed = self._state.pods.get(ObjectKey(key.namespace, name)), self._followed.get(key)
        if pod is None or pod.metadata.controller_uid != job.metadata.uid:
            if followed is not None:
                # Of a job that has ended, no other pod comes.
                followed.is_final = job.status.phase.is_terminal
            return False
        if followed is None or followed.pod_uid != pod.metadata.uid:
            followed = self._followed[key] = _Followed(pod.metadata.uid)
        if asyncio.get_running_loop().time() < followed.refused_until or not self._logs.may_read(pod):
            return False
        # The outline of a job has no resource requests, which matter only while the job runs.
        whole = job if job.status.phase.is_terminal else await self._state.with_templates(job)
        await self._read(job, whole.spec.worker or job.spec.worker, pod, followed)
        return True

    async def _read(self, job: PaddleJob, worker: RoleSpec, pod: Pod, followed: _Followed) -> None:
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
        followed.feed(text)
        if not followed.idle and (idle := left_idle(worker, text)):
            followed.idle = f"{Replica(Role.WORKER, 0)} {idle}"
            self._state.warn(job.metadata.key, pod, followed.idle)
            self._record_event(job, Event(EventType.WARNING, Reason.IDLE_ACCELERATORS, followed.idle))
        if (reported := progress_of(followed.tracker, followed.newest)) is not None:
            self._writer.read(job, pod, reported, at_once=ended)


def progress_of(tracker: Tracker, now: float) -> TrainingProgress | None:
    """Return what is known as the API writes it."""
    known = tracker.progress
    if known is None:
        return None
    eta = tracker.eta_seconds(now)
    unit = f" {known.throughput_unit}" if known.throughput_unit else ""
    return TrainingProgress(
        step=known.step or 0,
        steps=known.steps or 0,
        epoch=known.epoch or 0,
        epochs=known.epochs or 0,
        percent=None if known.fraction is None else round(100 * known.fraction),
        loss="" if known.loss is None else f"{known.loss:.4g}",
        throughput="" if known.throughput is None else f"{known.throughput:.4g}{unit}",
        eta="" if eta is None else duration(eta),
    )
