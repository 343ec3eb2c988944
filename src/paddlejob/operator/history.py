"""Keeps a record of every job in a ConfigMap of its namespace, which outlives the job and its pods.

A status change that ends an attempt is recorded after the status is written and before the pods are deleted,
while their termination messages and logs can still be read. Logs are read for a few ranks and for a few
seconds, within a budget that namespaces share. A fixed number of tasks write the records.

Records do not influence decisions. Anything lost with an operator is reconstructed from the status by its
successor, in less detail.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import secrets
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import ObjectKey
from paddlejob.api.names import Reason
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase
from paddlejob.core.attempts.processes import apparent_pod
from paddlejob.core.pod_set import ObservedPod, training_container_name
from paddlejob.fair_share import FairRate, may_take
from paddlejob.history import compose
from paddlejob.history.compose import Track
from paddlejob.history.environment import environment_of
from paddlejob.history.record import RankEnd, object_key
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.workqueue import Priority, WorkQueue
from paddlejob.operator.limits import outline_of
from paddlejob.operator.record_store import RecordStore
from paddlejob.operator.reports.pod_log import LogReader
from paddlejob.operator.settings import HistorySettings
from paddlejob.operator.state import ClusterState
from paddlejob.training.findings import Hang

log = logging.getLogger(__name__)

MAX_WRITES = 8
"""Records that are written or deleted concurrently; namespaces share the writers."""
WRITE_SLOT_SECONDS = 1.0
"""Minimum time that a write occupies a writer, which bounds the rate."""
LOOK_SECONDS = 5.0
"""Interval between two passes over the cache for new progress and deleted jobs."""
SAVE_SECONDS = 600.0
"""Interval at which the record of a running job is written, so that little is lost with the operator."""
CATCH_UP = timedelta(hours=1)
"""Maximum age of an ended job without a record that a new operator still records."""
LINGER_SECONDS = 30.0
"""Time after the end of a job in which its last progress may arrive."""
TRIM_SECONDS = 60.0
"""Interval between two searches for expired records. The number of records is checked after each write."""
MAX_TRIES = 5

LOGS_PER_END = 8
"""Logs that are read when an attempt ends, beginning with the rank that failed first."""
MAX_LOGS, LOGS_PERIOD_SECONDS = 48, 6.0
"""Logs that are read in a period; namespaces share them."""
LOG_SECONDS = 3.0
"""Maximum delay of the deletion of pods while their logs are read."""
LOG_LINES, LOG_BYTES = 100, 65536
MAX_WAITING_BYTES = 32 * 1024 * 1024
"""Maximum size of unwritten text; a namespace that has used its share keeps one rank of an attempt."""


class _Task(NamedTuple):
    """A record to write, or to delete if `uid` is empty."""

    record: ObjectKey
    uid: str = ""


class HistoryKeeper:
    """Records jobs of the cluster until cancelled."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        settings: HistorySettings,
        *,
        namespace: str = "",
        now: Callable[[], datetime],
    ) -> None:
        self._logs = LogReader(client)
        self._state = state
        self._settings = settings
        self._store = RecordStore(client, settings, namespace=namespace, now=now)
        self._now = now
        self._tracks: dict[str, Track] = {}
        self._trim_at = 0.0
        self._done: set[str] = set()
        """UIDs of ended jobs that need no further writes; their records may already be deleted."""
        self._due: dict[str, None] = {}
        """UIDs of jobs whose record must be written, in order."""
        # Never stored: a reader of the records could use it to verify guesses of hidden values.
        self._hiding_key = secrets.token_bytes(16)
        self._writing: set[str] = set()
        """UIDs of jobs whose record is being written."""
        self._queue: WorkQueue[_Task] = WorkQueue(
            rng=random.Random(0),  # noqa: S311  (unused: the queue retries no task)
            group_of=lambda task: task.record.namespace,
            workers=MAX_WRITES,
        )
        self._log_rate = FairRate(MAX_LOGS, LOGS_PERIOD_SECONDS)

    # Called by the reconciler.

    async def on_status(self, job: PaddleJob, new: PaddleJobStatus) -> None:
        """Note a written status, and read the pods before they are deleted. Never raises."""
        old = job.status
        same = (old.phase, old.reason, old.attempt) == (new.phase, new.reason, new.attempt)
        if same or old.phase.is_terminal:
            return
        try:
            await self._note_status(job, new)
        except Exception:
            log.exception("%s: bug in the operator; its record is incomplete", job.metadata.key)

    async def _note_status(self, job: PaddleJob, new: PaddleJobStatus) -> None:
        outline = outline_of(job)
        old, track = job.status, self._track(outline)
        if track.has_ended and not new.phase.is_terminal:
            return  # the response was late, and another operator has ended the job since
        track.update(msgspec.structs.replace(outline, status=new))
        track.add_phase(new, self._now())
        pods = self._apparent_pods(job)
        ranks: list[RankEnd] = []
        if new.attempt == old.attempt and not new.phase.is_terminal:
            if new.reason == Reason.HUNG:
                ranks = await self._ranks(job, new, pods)
                track.note_hang(compose.attempt_record(job, new, self._now(), ranks))
                self._due[job.metadata.uid] = None
            elif new.phase is Phase.RUNNING:
                track.environment = environment_of(job, pods, self._hiding_key)
            return
        track.recorded = new.attempt
        if new.phase.is_terminal:
            track.ended_clock = asyncio.get_running_loop().time()
        track.reads_logs = True
        try:
            ranks = await self._ranks(job, new, pods)
        finally:
            # Record the end of the attempt even if the ranks could not be read.
            track.reads_logs = False
            environment = track.environment or environment_of(job, pods, self._hiding_key)
            track.end_attempt(compose.attempt_record(job, new, self._now(), ranks), environment)
            self._due[job.metadata.uid] = None

    def _apparent_pods(self, job: PaddleJob) -> tuple[Pod, ...]:
        """Return the pods as if their containers had ended with their programs."""
        processes = self._state.memory(job.metadata.key).processes
        containers = {str(role): training_container_name(spec) for role, spec in job.spec.roles()}

        def apparent(pod: Pod) -> Pod:
            container = containers.get(pod.metadata.labels.get(names.LABEL_RESOURCE_TYPE, ""), "")
            return apparent_pod(pod, processes.get(pod.metadata.uid), job.status, container)

        return tuple(map(apparent, self._state.pods.find("owner", job.metadata.uid)))

    async def _ranks(self, job: PaddleJob, new: PaddleJobStatus, pods: tuple[Pod, ...]) -> list[RankEnd]:
        failure = compose.failure_of_attempt(new.last_failure, job.status.attempt)
        hang = self._state.finding(job, Hang)
        members = compose.sort_by_failure(compose.ended_ranks(job, pods, hangs=hang is not None), failure)
        if not self._has_room_for_text(job.metadata.namespace):
            members = members[:1]
        logs = await self._read_logs(job, members)
        where = compose.stacks_by_pod(hang)
        return [
            compose.rank_end(
                member, logs.get(member.pod.metadata.name), where.get(member.pod.metadata.name, "")
            )
            for member in members
        ]

    def _has_room_for_text(self, namespace: str) -> bool:
        """Return whether a namespace may add more unwritten text."""
        waiting: Counter[str] = Counter()
        for uid in self._due.keys() & self._tracks.keys():
            track = self._tracks[uid]
            waiting[track.job.metadata.namespace] += track.waiting_bytes
        return may_take(MAX_WAITING_BYTES - waiting.total(), waiting[namespace])

    async def _read_logs(self, job: PaddleJob, members: list[ObservedPod]) -> dict[str, str]:
        """Return the ends of a few logs by pod name, without those that are not received in time."""
        found: dict[str, str] = {}

        async def read(member: ObservedPod) -> None:
            pod: Pod = member.pod
            container = member.training.name if member.training else ""
            try:
                found[pod.metadata.name] = await self._logs.read_end(
                    pod, container, lines=LOG_LINES, keep_bytes=LOG_BYTES, timeout_seconds=LOG_SECONDS
                )
            except errors.KubeError as error:
                log.debug("%s: no log of %s: %s", job.metadata.key, pod.metadata.name, error)

        await asyncio.gather(*map(read, self._with_log_slots(job, members)))
        return found

    def _with_log_slots(self, job: PaddleJob, members: list[ObservedPod]) -> list[ObservedPod]:
        """Return the members whose logs may be read now; the others are skipped."""
        clock = asyncio.get_running_loop().time()
        readable = [each for each in members if self._logs.may_read(each.pod)][:LOGS_PER_END]
        namespace = job.metadata.namespace
        return list(itertools.takewhile(lambda _: self._log_rate.take(namespace, clock), readable))

    # The tasks that write.

    async def run(self) -> None:
        """Write records until cancelled."""
        clock = asyncio.get_running_loop().time
        # Before the first list, a job that is not in the cache is not a deleted job.
        for informer in self._state.informers:
            await informer.synced.wait()
        await self._store.load()
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_WRITES):
                group.create_task(self._writer())
            while True:
                try:
                    self._update_tracks()
                    self._drop_surplus_tracks()
                    self._trim(clock())
                    for uid in self._due:
                        self._queue.add(_Task(object_key(self._tracks[uid].summary), uid))
                except Exception:
                    log.exception("bug in the operator; records are written again later")
                await asyncio.sleep(LOOK_SECONDS)

    def _trim(self, now: float) -> None:
        if now < self._trim_at:
            return
        surplus = self._store.surplus(self._tracks)
        for summary in surplus:
            self._queue.add(_Task(object_key(summary)), priority=Priority.RESYNC)
        self._trim_at = now + (0.0 if surplus else TRIM_SECONDS)

    async def _writer(self) -> None:
        clock = asyncio.get_running_loop().time
        while (task := await self._queue.get()) is not None:
            began = clock()
            try:
                await (self._write(task) if task.uid else self._store.remove(task.record))
            except Exception:
                log.exception("bug in the operator; record %s is written again later", task.record)
            await asyncio.sleep(began + WRITE_SLOT_SECONDS - clock())
            self._queue.done(task)

    def _update_tracks(self) -> None:
        """Update the tracks of existing jobs, and end the records of deleted jobs."""
        clock = asyncio.get_running_loop().time()
        present = set()
        for job in self._state.jobs:
            uid = job.metadata.uid
            present.add(uid)
            if job.spec.managed_by in ("", names.CONTROLLER_NAME):
                self._follow(job, clock)
        self._done &= present
        for uid in [uid for uid in self._tracks if uid not in present]:
            self._end_deleted(uid)
        for summary in self._store.summaries.values():
            uid = summary.uid
            if not summary.is_final and uid not in present and uid not in self._tracks:
                self._tracks[uid] = Track(
                    compose.reconstruct_job(summary), summary.attempt, asyncio.get_running_loop().time()
                )
                self._end_deleted(uid)

    def _follow(self, job: PaddleJob, clock: float) -> None:
        uid, status = job.metadata.uid, job.status
        if uid in self._done or (uid not in self._tracks and self._is_over(job)):
            self._done.add(uid)
            return
        track = self._track(job)
        track.add_progress(status)
        if track.has_ended:
            self._close(uid, track, clock)
        elif status.phase.is_terminal or status.attempt > track.recorded:
            track.recorded = status.attempt
            track.ended_clock = clock if status.phase.is_terminal else None
            track.end_attempt(compose.reconstruct_attempt(job))
            self._due[uid] = None
        elif track.curve and clock >= track.saved_at + SAVE_SECONDS:
            self._due[uid] = None

    def _is_over(self, job: PaddleJob) -> bool:
        """Return whether a job that ended before this operator started no longer needs a record."""
        kept, ended = self._store.find(job), job.status.completion_time
        if not job.status.phase.is_terminal:
            return False
        return kept.is_final if kept else ended is None or ended < self._now() - CATCH_UP

    def _close(self, uid: str, track: Track, clock: float) -> None:
        """Forget an ended job after its last progress has been recorded."""
        assert track.ended_clock is not None
        if self._is_unwritten(uid) or clock < track.ended_clock + LINGER_SECONDS:
            return
        if track.curve:
            self._due[uid] = None
        else:
            del self._tracks[uid]
            self._done.add(uid)

    def _end_deleted(self, uid: str) -> None:
        track = self._tracks[uid]
        if track.reads_logs:
            return
        if track.has_ended:
            if not self._is_unwritten(uid):
                del self._tracks[uid]
            return
        track.ended_clock, track.deleted_at = asyncio.get_running_loop().time(), self._now()
        track.end_attempt(compose.reconstruct_attempt(track.job, deleted_at=track.deleted_at))
        self._due[uid] = None

    def _is_unwritten(self, uid: str) -> bool:
        return uid in self._due or uid in self._writing

    def _track(self, job: PaddleJob) -> Track:
        uid = job.metadata.uid
        track = self._tracks.get(uid)
        if track is None:
            kept = self._store.find(job)
            track = self._tracks[uid] = Track(
                job, kept.attempt if kept else 0, asyncio.get_running_loop().time()
            )
        elif not track.has_ended and track.recorded <= job.status.attempt:
            track.update(job)
        return track

    async def _write(self, task: _Task) -> None:
        """Write a record, and give up after MAX_TRIES refusals."""
        uid = task.uid
        if uid not in self._due:
            return
        del self._due[uid]
        self._writing.add(uid)
        try:
            is_settled = await self._try_write(self._tracks[uid])
        finally:
            self._writing.discard(uid)
        if not is_settled:
            self._due[uid] = None

    async def _try_write(self, track: Track) -> bool:
        """Write a record once; return False if the write must be retried."""
        attempts, entries, curve = len(track.attempts), len(track.timeline), track.curve
        track.saved_at = asyncio.get_running_loop().time()
        try:
            await self._store.save(track)
        except errors.KubeError as error:
            # Only permanent refusals count; other errors are temporary.
            track.tries += isinstance(error, errors.REFUSALS)
            if track.tries < MAX_TRIES:
                return False
            log.info("%s is not recorded: %s", track.job.metadata.key, error)
            self._store.update_summary(track.summary)
        self._trim_at = 0.0
        # Keep entries that were added during the write.
        del track.attempts[:attempts], track.timeline[:entries]
        track.curve = [] if track.curve is curve else track.curve
        track.tries = 0
        return True

    def _drop_surplus_tracks(self) -> None:
        """Drop unwritten records that newer unwritten ones would replace immediately.

        Jobs may end faster than records are written, and unwritten records take memory.
        """
        ended = {uid: track for uid in self._due if (track := self._tracks[uid]).has_ended}
        counts = Counter(track.job.metadata.namespace for track in ended.values())
        for uid, track in ended.items():
            namespace = track.job.metadata.namespace
            is_busy = track.reads_logs or uid in self._writing
            if counts[namespace] > self._settings.per_namespace and not is_busy:
                counts[namespace] -= 1
                self._store.update_summary(track.summary)
                del self._due[uid], self._tracks[uid]
                self._done.add(uid)
