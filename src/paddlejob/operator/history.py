"""Keeps a record of every job in a ConfigMap of its namespace, which outlives the job and its pods.

What a status ends is recorded between its write and the deletion of pods that follows from it: then the pods
still tell how they ended. Termination messages cost nothing; logs are read for a few ranks, within a budget
that namespaces share, and for a few seconds only. Records are written by a few tasks, which namespaces share
as well.

A record decides nothing. Whatever is lost with an operator is made up from the status by its successor, with
fewer details.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import secrets
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import ObjectKey
from paddlejob.api.names import Reason
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase
from paddlejob.core.pod_set import ObservedPod
from paddlejob.core.recording.hangs import Hang
from paddlejob.fair_share import FairRate, may_take
from paddlejob.history import compose
from paddlejob.history.environment import environment_of
from paddlejob.history.record import (
    RECORD_KEY,
    RankEnd,
    StoredRecord,
    Summary,
    manifest,
    object_key,
    outline_of_record,
    summary_of_object,
    unpack,
)
from paddlejob.history.track import Track
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS
from paddlejob.kube.workqueue import Priority, WorkQueue
from paddlejob.operator.limits.views import outline_of
from paddlejob.operator.pod_log import LogReader
from paddlejob.operator.settings import HistorySettings
from paddlejob.operator.state import ClusterState

log = logging.getLogger(__name__)

MAX_WRITES = 8
"""Number of records that are written or deleted concurrently; namespaces share the writers fairly."""
WRITE_SLOT_SECONDS = 1.0
"""How long a write occupies a writer at least, which bounds the rate."""
LOOK_SECONDS = 5.0
"""How often the cache is looked at for progress, and for jobs that are gone."""
SAVE_SECONDS = 600.0
"""How often the record of a job that trains is written, so that an operator that ends loses little of it."""
CATCH_UP = timedelta(hours=1)
"""Jobs that ended without a record are recorded by an operator that starts within this time."""
LINGER_SECONDS = 30.0
"""How long after the end of a job its last progress may come."""
UNDELETABLE_SECONDS = 600.0
"""How long a record that could not be deleted is left alone."""
TRIM_SECONDS = 60.0
"""How often records are looked at for those that have expired; for too many after each that is written."""
PAGE_SIZE = 20
MAX_TRIES = 5

LOGS_PER_END = 8
"""How many logs are read when an attempt ends: that of the rank that failed first, then others."""
MAX_LOGS, LOGS_PERIOD_SECONDS = 48, 6.0
"""How many logs are read in a period; namespaces share them fairly."""
LOG_SECONDS = 3.0
"""How long the deletion of pods waits for their logs."""
LOG_LINES, LOG_BYTES = 100, 65536
MAX_WAITING_BYTES = 32 * 1024 * 1024
"""Text that waits to be written; a namespace with its share of it keeps one rank of an attempt."""


class _Task(NamedTuple):
    """A record to write or, without the UID of its job, to delete."""

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
        self._client = client
        self._logs = LogReader(client)
        self._state = state
        self._settings = settings
        self._namespace = namespace
        self._now = now
        self._tracks: dict[str, Track] = {}
        self._kept: dict[ObjectKey, Summary] = {}
        """The records that exist, by their place: a UID is what anybody can write into a ConfigMap."""
        self._undeletable: dict[ObjectKey, float] = {}
        """Records that could not be deleted, and when that is tried again."""
        self._trim_at = 0.0
        self._done: set[str] = set()
        """Jobs that have ended and need nothing more; their records may be gone again."""
        self._due: dict[str, None] = {}
        """Jobs whose record is to be written, by UID, in order."""
        # Never stored: with it, a reader of the records could confirm guesses of hidden values.
        self._hiding_key = secrets.token_bytes(16)
        self._writing: set[str] = set()
        """Jobs whose record is being written, by UID."""
        self._queue: WorkQueue[_Task] = WorkQueue(
            rng=random.Random(0),  # noqa: S311  (spreads nothing: no task is retried by the queue)
            group_of=lambda task: task.record.namespace,
            workers=MAX_WRITES,
        )
        self._log_rate = FairRate(MAX_LOGS, LOGS_PERIOD_SECONDS)

    # What the reconciler tells.

    async def on_status(self, job: PaddleJob, new: PaddleJobStatus) -> None:
        """Take in a status that was written; before pods are deleted, keep what they tell. Never raises."""
        old = job.status
        same = (old.phase, old.reason, old.attempt) == (new.phase, new.reason, new.attempt)
        if same or old.phase.is_terminal:
            return
        try:
            await self._take_in(job, new)
        except Exception:
            log.exception("%s: bug in the operator; its record is incomplete", job.metadata.key)

    async def _take_in(self, job: PaddleJob, new: PaddleJobStatus) -> None:
        outline = outline_of(job)
        old, track = job.status, self._track(outline)
        if track.has_ended and not new.phase.is_terminal:
            return  # the response to this write was so late that another operator has ended the job
        track.see(msgspec.structs.replace(outline, status=new))
        track.enter(new, self._now())
        pods = self._state.pods.find("owner", job.metadata.uid)
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
            # Whatever is wrong with the ranks, that the attempt ended is recorded.
            track.reads_logs = False
            environment = track.environment or environment_of(job, pods, self._hiding_key)
            track.end_attempt(compose.attempt_record(job, new, self._now(), ranks), environment)
            self._due[job.metadata.uid] = None

    async def _ranks(self, job: PaddleJob, new: PaddleJobStatus, pods: tuple[Pod, ...]) -> list[RankEnd]:
        failure = compose.failure_of_attempt(new.last_failure, job.status.attempt)
        hang = self._state.noticed(job, Hang)
        members = compose.first_failed_first(compose.ended_ranks(job, pods, hangs=hang is not None), failure)
        if not self._may_wait(job.metadata.namespace):
            members = members[:1]
        logs = await self._read_logs(job, members)
        where = compose.stacks_by_pod(hang)
        return [
            compose.rank_end(
                member, logs.get(member.pod.metadata.name), where.get(member.pod.metadata.name, "")
            )
            for member in members
        ]

    def _may_wait(self, namespace: str) -> bool:
        """Return whether more text of a namespace may wait to be written."""
        waiting: Counter[str] = Counter()
        for uid in self._due.keys() & self._tracks.keys():
            track = self._tracks[uid]
            waiting[track.job.metadata.namespace] += track.waiting_bytes
        return may_take(MAX_WAITING_BYTES - waiting.total(), waiting[namespace])

    async def _read_logs(self, job: PaddleJob, members: list[ObservedPod]) -> dict[str, str]:
        """Return the ends of a few logs by pod: those that come in time."""
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
        """Return the members whose logs may be read now; no job waits for more."""
        clock = asyncio.get_running_loop().time()
        readable = [each for each in members if self._logs.may_read(each.pod)][:LOGS_PER_END]
        namespace = job.metadata.namespace
        return list(itertools.takewhile(lambda _: self._log_rate.take(namespace, clock), readable))

    # The task that writes.

    async def run(self) -> None:
        """Write records until cancelled."""
        clock = asyncio.get_running_loop().time
        # A job that has not been listed yet is not one that was deleted.
        for informer in self._state.informers:
            await informer.synced.wait()
        await self._load()
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_WRITES):
                group.create_task(self._writer())
            while True:
                try:
                    self._look()
                    self._give_up_surplus()
                    self._trim(clock())
                    for uid in self._due:
                        self._queue.add(_Task(object_key(self._tracks[uid].summary), uid))
                except Exception:
                    log.exception("bug in the operator; records are written again later")
                await asyncio.sleep(LOOK_SECONDS)

    def _trim(self, now: float) -> None:
        if now < self._trim_at:
            return
        surplus = self._surplus()
        for summary in surplus:
            self._queue.add(_Task(object_key(summary)), priority=Priority.RESYNC)
        self._trim_at = now + (0.0 if surplus else TRIM_SECONDS)

    async def _writer(self) -> None:
        clock = asyncio.get_running_loop().time
        while (task := await self._queue.get()) is not None:
            began = clock()
            try:
                await (self._write(task) if task.uid else self._remove(task.record))
            except Exception:
                log.exception("bug in the operator; record %s is written again later", task.record)
            await asyncio.sleep(began + WRITE_SLOT_SECONDS - clock())
            self._queue.done(task)

    async def _load(self) -> None:
        """Learn which records exist."""
        while True:
            try:
                self._kept = await self._list()
            except errors.KubeError as error:
                log.warning("cannot list the records of jobs, will be retried: %s", error)
                await asyncio.sleep(LOOK_SECONDS)
            else:
                return

    async def _list(self) -> dict[ObjectKey, Summary]:
        """Return the records without their texts; a page holds no more of them than one response may."""
        found: dict[ObjectKey, Summary] = {}
        token, limit = "", PAGE_SIZE
        while True:
            try:
                page = await self._client.list(
                    CONFIG_MAPS,
                    self._namespace or None,
                    label_selector=names.LABEL_HISTORY,
                    limit=limit,
                    continue_token=token,
                    type=msgspec.Raw,
                )
            except errors.ResponseTooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            summaries = map(outline_of_record, page.items)
            found |= {object_key(summary): summary for summary in summaries if summary}
            token = page.metadata.continue_token
            if not token:
                return found

    def _look(self) -> None:
        """Follow the jobs that there are, and end the records of those that are gone."""
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
        for summary in self._kept.values():
            uid = summary.uid
            if not summary.is_final and uid not in present and uid not in self._tracks:
                self._tracks[uid] = Track(
                    compose.last_seen(summary), summary.attempt, asyncio.get_running_loop().time()
                )
                self._end_deleted(uid)

    def _follow(self, job: PaddleJob, clock: float) -> None:
        uid, status = job.metadata.uid, job.status
        if uid in self._done or (uid not in self._tracks and self._is_over(job)):
            self._done.add(uid)
            return
        track = self._track(job)
        track.sample(status)
        if track.has_ended:
            self._close(uid, track, clock)
        elif status.phase.is_terminal or status.attempt > track.recorded:
            track.recorded = status.attempt
            track.ended_clock = clock if status.phase.is_terminal else None
            track.end_attempt(compose.remembered_attempt(job))
            self._due[uid] = None
        elif track.curve and clock >= track.saved_at + SAVE_SECONDS:
            self._due[uid] = None

    def _is_over(self, job: PaddleJob) -> bool:
        """Tell whether a job that this operator did not see end needs no record any more."""
        kept, ended = self._kept_of(job), job.status.completion_time
        if not job.status.phase.is_terminal:
            return False
        return kept.is_final if kept else ended is None or ended < self._now() - CATCH_UP

    def _close(self, uid: str, track: Track, clock: float) -> None:
        """Forget a job that has ended, after what its log tells of its end has come too."""
        assert track.ended_clock is not None
        if self._is_unwritten(uid) or clock < track.ended_clock + LINGER_SECONDS:
            return
        if track.curve:
            self._due[uid] = None
        else:
            del self._tracks[uid]
            self._done.add(uid)

    def _kept_of(self, job: PaddleJob) -> Summary | None:
        found = self._kept.get(object_key(Summary(job.name, job.metadata.namespace, job.metadata.uid)))
        return found if found and found.uid == job.metadata.uid else None

    def _end_deleted(self, uid: str) -> None:
        track = self._tracks[uid]
        if track.reads_logs:
            return
        if track.has_ended:
            if not self._is_unwritten(uid):
                del self._tracks[uid]
            return
        track.ended_clock, track.deleted_at = asyncio.get_running_loop().time(), self._now()
        track.end_attempt(compose.remembered_attempt(track.job, deleted_at=track.deleted_at))
        self._due[uid] = None

    def _is_unwritten(self, uid: str) -> bool:
        return uid in self._due or uid in self._writing

    def _track(self, job: PaddleJob) -> Track:
        uid = job.metadata.uid
        track = self._tracks.get(uid)
        if track is None:
            kept = self._kept_of(job)
            track = self._tracks[uid] = Track(
                job, kept.attempt if kept else 0, asyncio.get_running_loop().time()
            )
        elif not track.has_ended and track.recorded <= job.status.attempt:
            track.see(job)
        return track

    async def _write(self, task: _Task) -> None:
        """Write a record; a job that cannot be recorded is given up after a few tries."""
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
        """Write a record once; return False if that is to be repeated."""
        attempts, entries, curve = len(track.attempts), len(track.timeline), track.curve
        track.saved_at = asyncio.get_running_loop().time()
        try:
            await self._save(track)
        except errors.KubeError as error:
            # Only a refusal for good is repeated by the server; other errors pass, however long it takes.
            track.tries += isinstance(error, errors.REFUSALS)
            if track.tries < MAX_TRIES:
                return False
            log.info("%s is not recorded: %s", track.job.metadata.key, error)
            if (key := object_key(track.summary)) in self._kept:
                self._kept[key] = track.summary
        self._trim_at = 0.0
        # Entries that were added meanwhile stay.
        del track.attempts[:attempts], track.timeline[:entries]
        track.curve = [] if track.curve is curve else track.curve
        track.tries = 0
        return True

    async def _save(self, track: Track) -> None:
        key = object_key(track.summary)
        try:
            found = await self._client.get(CONFIG_MAPS, key.namespace, key.name, type=StoredRecord)
        except errors.NotFoundError:
            summary = track.summary
            await self._client.create(CONFIG_MAPS, key.namespace, manifest(track.merged_into(None)))
            self._kept[key] = summary
            return
        known = summary_of_object(found.metadata)
        if known is None or known.uid != track.summary.uid:
            obstacle = f"ConfigMap {key.name} exists and is not its record"
            log.warning("%s is not recorded: %s", track.job.metadata.key, obstacle)
            # Otherwise the summary would open a new track for the deleted job at every look.
            self._kept.pop(key, None)
            return
        record = track.merged_into(unpack(found.binary_data.get(RECORD_KEY, b"")))
        body = manifest(record, found.metadata.resource_version)
        await self._client.replace(CONFIG_MAPS, key.namespace, key.name, body)
        self._kept[key] = record.summary

    # Limits.

    def _give_up_surplus(self) -> None:
        """Leave out records that would be deleted as soon as they are written: so many newer ones wait.

        Jobs may come and go faster than records are written, and what waits takes memory.
        """
        ended = {uid: track for uid in self._due if (track := self._tracks[uid]).has_ended}
        counts = Counter(track.job.metadata.namespace for track in ended.values())
        for uid, track in ended.items():
            namespace = track.job.metadata.namespace
            is_busy = track.reads_logs or uid in self._writing
            if counts[namespace] > self._settings.per_namespace and not is_busy:
                counts[namespace] -= 1
                if (key := object_key(track.summary)) in self._kept:
                    self._kept[key] = track.summary
                del self._due[uid], self._tracks[uid]
                self._done.add(uid)

    def _surplus(self) -> list[Summary]:
        """Return the records that are too old or too many, the oldest of a namespace first."""
        clock = asyncio.get_running_loop().time()
        kept = [each for key, each in self._kept.items() if self._undeletable.get(key, clock) <= clock]
        oldest_first = sorted(
            (each for each in kept if each.is_final and each.uid not in self._tracks),
            key=lambda each: (each.ended or each.created or _LONG_AGO, each.uid),
        )
        counts = Counter(each.namespace for each in kept)
        expiry = self._now() - timedelta(days=self._settings.days)
        found = []
        for each in oldest_first:
            expired = each.ended is not None and each.ended < expiry
            if expired or counts[each.namespace] > self._settings.per_namespace:
                counts[each.namespace] -= 1
                found.append(each)
        return found

    async def _remove(self, key: ObjectKey) -> None:
        """Delete a record."""
        try:
            await self._client.delete(CONFIG_MAPS, key.namespace, key.name)
        except errors.NotFoundError:
            self._forget(key)
        except errors.KubeError as error:
            log.warning("cannot delete the record %s, will be retried: %s", key, error)
            self._undeletable[key] = asyncio.get_running_loop().time() + UNDELETABLE_SECONDS
        else:
            self._forget(key)

    def _forget(self, key: ObjectKey) -> None:
        self._kept.pop(key, None)
        self._undeletable.pop(key, None)


_LONG_AGO = datetime.min.replace(tzinfo=UTC)
