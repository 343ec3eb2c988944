"""Writes `status.progress`: every 15 seconds a job, at a rate that is bounded for each namespace."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from datetime import datetime

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, TrainingProgress
from paddlejob.core.attempts import advance
from paddlejob.core.policy import goodput
from paddlejob.core.recording.progress import Origin, advanced
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.workqueue import WorkQueue
from paddlejob.operator.resources import PADDLE_JOBS
from paddlejob.operator.state import ClusterState
from paddlejob.operator.status.patch import status_patch

log = logging.getLogger(__name__)

WRITE_SECONDS = 15.0
"""The shortest time between two writes of a job's progress."""
RETRY_SECONDS = 1.0
"""When a write is tried again that met another one of the same job."""
MAX_WRITES = 10
"""Number of jobs whose progress is written concurrently; namespaces share the writers fairly."""
WRITE_SLOT_SECONDS = 1.0
"""How long a write occupies a writer at least, which bounds the rate."""
REPORTS_WIN_SECONDS = 600.0
"""How long a report tells more than a log; longer than the longest pause between two."""


class _Kept:
    """What is known of a job's progress."""

    def __init__(self, job: PaddleJob) -> None:
        self.uid = job.metadata.uid
        self.known = job.status.progress
        self.earlier: TrainingProgress | None = None
        """The last progress of the attempt before that of `known`."""
        self.logged: TrainingProgress | None = None
        self.said: TrainingProgress | None = None
        self.reported_at = -math.inf
        self.reports_total = False
        """Whether the reports tell how many steps there are."""
        self.due_at = -math.inf
        """When it may be written next."""
        self.shown: set[tuple[int, str]] = set()
        """What people see of an attempt since it was written."""

    def advance(self, reported: TrainingProgress, attempt: int, origin: Origin | None = None) -> None:
        """Add a report of an attempt."""
        if self.known is not None and self.known.attempt < attempt:
            self.earlier = self.known
        self.known = advanced(self.known, reported, attempt=attempt, origin=origin)


class ProgressWriter:
    """Joins what logs, reports and programs themselves tell of jobs.

    Reports win; logs fill in what a program only prints. How much is done and left, a program knows best.
    """

    def __init__(self, client: Client, state: ClusterState, *, now: Callable[[], datetime]) -> None:
        self._client = client
        self._state = state
        self._now = now
        self._kept: dict[ObjectKey, _Kept] = {}
        self._pending: set[ObjectKey] = set()
        self._news = asyncio.Event()
        self._queue: WorkQueue[ObjectKey] = WorkQueue(
            rng=random.Random(0),  # noqa: S311  (spreads nothing: no key is retried by the queue)
            group_of=lambda key: key.namespace,
            workers=MAX_WRITES,
        )

    def read(self, job: PaddleJob, pod: Pod, reported: TrainingProgress, *, at_once: bool) -> None:
        """Take in what the log of a pod tells."""
        kept = self._keep(job)
        kept.logged = reported
        if not self._is_reported(kept):
            kept.advance(reported, _attempt(pod))
        self._write_soon(job, kept, at_once=at_once)

    def report(self, job: PaddleJob, pod: Pod, reported: TrainingProgress, origin: Origin | None) -> None:
        """Take in what a pod reports; reports of earlier attempts are ignored."""
        kept, attempt = self._keep(job), _attempt(pod)
        if kept.known is not None and attempt < kept.known.attempt:
            return
        # The first report of an attempt tells its phase; what the log said may just have been written.
        is_first = kept.known is None or attempt != kept.known.attempt or not self._is_reported(kept)
        kept.reported_at = asyncio.get_running_loop().time()
        kept.reports_total = bool(reported.steps)
        kept.advance(reported, attempt, origin)
        self._write_soon(job, kept, at_once=is_first)

    def say(self, job: PaddleJob, pod: Pod, reported: TrainingProgress) -> None:
        """Take in what a program says of itself."""
        kept, attempt = self._keep(job), _attempt(pod)
        if kept.known is not None and attempt < kept.known.attempt:
            return
        kept.said = msgspec.structs.replace(reported, attempt=attempt)
        if kept.known is None or (reported.step and not self._is_reported(kept)):
            kept.advance(reported, attempt)
        self._write_soon(job, kept, at_once=False)

    def knows_all(self, key: ObjectKey) -> bool:
        """Tell whether reports leave nothing to be read from a log."""
        kept = self._kept.get(key)
        return kept is not None and self._is_reported(kept) and kept.reports_total

    def knows_steps(self, key: ObjectKey) -> bool:
        """Return whether the steps of a job are reported, so that its log has no newer ones."""
        kept = self._kept.get(key)
        return kept is not None and self._is_reported(kept)

    def unwritten(self, job: PaddleJob) -> TrainingProgress | None:
        """Return the progress of a job that its status lacks, None if there is none."""
        kept, before = self._kept.get(job.metadata.key), job.status.progress
        if kept is None or kept.uid != job.metadata.uid or kept.known is None:
            return None
        known = self._joined(kept)
        if before is not None and msgspec.structs.replace(known, updated=before.updated) == before:
            return None
        return msgspec.structs.replace(known, updated=self._now().replace(microsecond=0))

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_WRITES):
                group.create_task(self._write_queued())
            while True:
                await self._news.wait()
                self._news.clear()
                self._queue_due()

    def _queue_due(self) -> None:
        """Queue the jobs whose progress may be written now, and set a timer for the next of the others."""
        loop = asyncio.get_running_loop()
        for key in [key for key in self._pending if self._kept[key].due_at <= loop.time()]:
            self._pending.discard(key)
            self._queue.add(key)
        if self._pending:
            loop.call_at(min(self._kept[key].due_at for key in self._pending), self._news.set)

    async def _write_queued(self) -> None:
        clock = asyncio.get_running_loop().time
        while (key := await self._queue.get()) is not None:
            began = clock()
            try:
                await self._write(key)
            except Exception:
                log.exception("%s: bug in the operator; its progress is written again later", key)
            await asyncio.sleep(began + WRITE_SLOT_SECONDS - clock())
            self._queue.done(key)

    def _keep(self, job: PaddleJob) -> _Kept:
        key = job.metadata.key
        kept = self._kept.get(key)
        if kept is None or kept.uid != job.metadata.uid:
            for gone in [other for other in self._kept if other not in self._state.jobs]:
                del self._kept[gone]
                self._pending.discard(gone)
            kept = self._kept[key] = _Kept(job)
        return kept

    def _is_reported(self, kept: _Kept) -> bool:
        return asyncio.get_running_loop().time() < kept.reported_at + REPORTS_WIN_SECONDS

    def _write_soon(self, job: PaddleJob, kept: _Kept, *, at_once: bool) -> None:
        # People wait for the first step, loss and remaining time, which do not come together.
        if at_once or not _columns(self._joined(kept)) <= kept.shown:
            kept.due_at = -math.inf
        self._pending.add(job.metadata.key)
        self._news.set()

    def _joined(self, kept: _Kept) -> TrainingProgress:
        known = kept.known
        assert known is not None
        if kept.logged is not None and self._is_reported(kept):
            known = _filled_in(known, kept.logged)
        if kept.said is not None and kept.said.attempt >= known.attempt:
            known = _as_said(known, kept.said, is_reported=self._is_reported(kept))
        return known

    async def _write(self, key: ObjectKey) -> None:
        job, kept = self._state.job(key), self._kept.get(key)
        if job is None or kept is None or job.metadata.uid != kept.uid:
            return
        known = self._joined(kept)
        kept.shown = {each for each in kept.shown if each[0] == known.attempt} | _columns(known)
        fresh = self.unwritten(job)
        if fresh is None:
            return
        new = self._with_progress(job, fresh, kept.earlier)
        metadata = {"uid": kept.uid}
        if msgspec.structs.replace(new, progress=job.status.progress) != job.status:
            # The reconciler counts too, so this must not be written over what it has counted.
            metadata["resourceVersion"] = job.metadata.resource_version
        patch = {"metadata": metadata, "status": status_patch(job.status, new)}
        # Before the write: what comes meanwhile and is to be written at once, is.
        kept.due_at = asyncio.get_running_loop().time() + WRITE_SECONDS
        try:
            await self._client.patch(PADDLE_JOBS, key.namespace, key.name, patch, subresource="status")
        except errors.KubeError as error:
            log.debug("%s: progress not written: %s", key, error)
            if not isinstance(error, errors.REFUSALS) and self._kept.get(key) is kept:
                # Of a job that has ended nothing comes that would say more.
                self._pending.add(key)
                self._news.set()
            if isinstance(error, errors.ConflictError):
                kept.due_at = asyncio.get_running_loop().time() + RETRY_SECONDS

    def _with_progress(
        self, job: PaddleJob, fresh: TrainingProgress, earlier: TrainingProgress | None
    ) -> PaddleJobStatus:
        """Return the status with new progress, and with the mark and the time spent that follow from it."""
        old = job.status
        late = earlier if fresh.attempt >= old.base_attempt else fresh
        old = msgspec.structs.replace(old, **advance.after_late_progress(old, late))
        if goodput.gets_ahead(old, fresh):
            marked = msgspec.structs.replace(job, status=old)
            spent = goodput.goodput_at(marked, self._now().replace(microsecond=0))
            old = msgspec.structs.replace(old, goodput=spent)
        return msgspec.structs.replace(old, progress=fresh)


def _columns(known: TrainingProgress) -> set[tuple[int, str]]:
    return {(known.attempt, name) for name in ("step", "loss", "eta") if getattr(known, name)}


def _filled_in(known: TrainingProgress, logged: TrainingProgress) -> TrainingProgress:
    """Add what only the program knows: how much there is to do, and samples rather than steps a second."""
    return msgspec.structs.replace(
        known,
        percent=logged.percent if known.percent is None else known.percent,
        eta=known.eta or logged.eta,
        throughput=logged.throughput or known.throughput,
    )


def _as_said(known: TrainingProgress, said: TrainingProgress, *, is_reported: bool) -> TrainingProgress:
    """Believe a program how much is done and left; its loss and epoch, unless the recorder reports them."""
    first, second = (known, said) if is_reported else (said, known)
    return msgspec.structs.replace(
        known,
        percent=known.percent if said.percent is None else said.percent,
        eta=said.eta or known.eta,
        loss=first.loss or second.loss,
        epoch=first.epoch or second.epoch,
        epochs=first.epochs or second.epochs,
    )


def _attempt(pod: Pod) -> int:
    label = pod.metadata.labels.get(names.LABEL_ATTEMPT, "")
    return int(label) if label.isascii() and label.isdecimal() else 0
