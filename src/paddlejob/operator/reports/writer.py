"""Writes `status.progress`, at most every 15 seconds for each job, at a rate that namespaces share."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from datetime import datetime

import msgspec

from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.status_change import change_status
from paddlejob.api.v1 import (
    PaddleJob,
    PaddleJobStatus,
    ProgressMark,
    Recovery,
    RecoveryKind,
    TrainingProgress,
)
from paddlejob.core.attempts import recovery
from paddlejob.core.attempts.recovery import FirstSteps
from paddlejob.core.pod_set import attempt_of
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.workqueue import WorkQueue
from paddlejob.operator.state import ClusterState
from paddlejob.operator.status import status_patch
from paddlejob.training import goodput, steps
from paddlejob.training.reports import Startup
from paddlejob.training.steps import Origin

log = logging.getLogger(__name__)

WRITE_SECONDS = 15.0
"""Minimum time between two writes of a job's progress."""
RETRY_SECONDS = 1.0
"""Delay before a conflicting write is retried."""
MAX_WRITES = 10
"""Number of concurrent writes; namespaces share them."""
WRITE_SLOT_SECONDS = 1.0
"""Minimum time that a write occupies a writer, which bounds the rate."""
REPORTS_WIN_SECONDS = 600.0
"""Time for which a report takes precedence over the log; more than the longest reporting interval."""


class _JobProgress:
    """The progress of one job from all sources."""

    def __init__(self, job: PaddleJob) -> None:
        self.uid = job.metadata.uid
        self.known = job.status.progress
        self.total: int | None = None
        """Total number of steps that the job declares."""
        self.earlier: TrainingProgress | None = None
        """Last progress of the attempt before the one in `known`."""
        self.logged: TrainingProgress | None = None
        self.update: TrainingProgress | None = None
        self.reported_at = -math.inf
        self.reports_total = False
        """Whether the reports contain the total number of steps."""
        self.due_at = -math.inf
        """Earliest time of the next write."""
        self.shown: set[tuple[int, str]] = set()
        """Attempt and name of the fields that have been written."""
        self.first_steps: FirstSteps | None = None

    def advance(self, reported: TrainingProgress, attempt: int, origin: Origin | None = None) -> None:
        """Add progress of an attempt."""
        if self.known is not None and self.known.attempt < attempt:
            self.earlier = self.known
        self.known = steps.add_report(self.known, reported, attempt=attempt, origin=origin)

    def time_steps(self, status: PaddleJobStatus, startup: Startup | None = None) -> None:
        """Note when the first steps of a recovery are made; `status` is that of the job."""
        known, mark = self.known, status.progress_mark or ProgressMark()
        if known is None or not known.step or recovery.is_complete(status):
            return
        is_new = steps.has_advanced(change_status(status, progress=known))
        self.first_steps = recovery.add_steps(
            self.first_steps,
            known.attempt,
            known.attempt_step or known.step,
            asyncio.get_running_loop().time(),
            startup,
            mark=mark.step if is_new else None,
        )


class ProgressWriter:
    """Merges progress from logs, reports and updates in Kubeflow's protocol.

    Reports take precedence over logs. Updates come from the program itself, so their percentage and remaining
    time take precedence over both.
    """

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        *,
        now: Callable[[], datetime],
        on_recovery: Callable[[Recovery], None] = lambda _: None,
    ) -> None:
        """`on_recovery` is called with the ledger of a recovery up to its total."""
        self._on_recovery = on_recovery
        self._client = client
        self._state = state
        self._now = now
        self._kept: dict[ObjectKey, _JobProgress] = {}
        self._pending: set[ObjectKey] = set()
        self._news = asyncio.Event()
        self._queue: WorkQueue[ObjectKey] = WorkQueue(
            rng=random.Random(0),  # noqa: S311  (unused: the queue retries no key)
            group_of=lambda key: key.namespace,
            workers=MAX_WRITES,
        )

    def add_logged(self, job: PaddleJob, pod: Pod, reported: TrainingProgress, *, at_once: bool) -> None:
        """Add progress from the log of a pod."""
        kept = self._keep(job)
        kept.logged = reported
        if not self._is_reported(kept):
            kept.advance(reported, self._state.process_attempt(job, pod))
            kept.time_steps(job.status)
        self._write_soon(job, kept, at_once=at_once)

    def add_report(
        self,
        job: PaddleJob,
        attempt: int,
        reported: TrainingProgress,
        origin: Origin | None,
        startup: Startup | None = None,
    ) -> None:
        """Add a report of a process; reports of earlier attempts are ignored."""
        kept = self._keep(job)
        if kept.known is not None and attempt < kept.known.attempt:
            return
        # The first report of an attempt has its phase, even if progress from the log was just written.
        is_first = kept.known is None or attempt != kept.known.attempt or not self._is_reported(kept)
        kept.reported_at = asyncio.get_running_loop().time()
        kept.reports_total = bool(reported.steps)
        kept.advance(reported, attempt, origin)
        kept.time_steps(job.status, startup)
        self._write_soon(job, kept, at_once=is_first)

    def add_update(self, job: PaddleJob, pod: Pod, reported: TrainingProgress) -> None:
        """Add an update in Kubeflow's protocol; updates of earlier attempts are ignored."""
        kept, attempt = self._keep(job), self._state.process_attempt(job, pod)
        if kept.known is not None and attempt < kept.known.attempt:
            return
        kept.update = msgspec.structs.replace(reported, attempt=attempt)
        if kept.known is None or (reported.step and not self._is_reported(kept)):
            kept.advance(reported, attempt)
        self._write_soon(job, kept, at_once=False)

    def knows_all(self, key: ObjectKey) -> bool:
        """Return whether the reports make reading the log unnecessary."""
        kept = self._kept.get(key)
        return kept is not None and self._is_reported(kept) and kept.reports_total

    def knows_steps(self, key: ObjectKey) -> bool:
        """Return whether the steps of a job are reported, so that its log has no newer steps."""
        kept = self._kept.get(key)
        return kept is not None and self._is_reported(kept)

    def unwritten_progress(self, job: PaddleJob) -> TrainingProgress | None:
        """Return progress of a job that is not in its status, or None."""
        kept, before = self._kept.get(job.metadata.key), job.status.progress
        if kept is None or kept.uid != job.metadata.uid or kept.known is None:
            return None
        known = self._merge(kept)
        if job.status.phase.is_terminal:
            known = steps.at_end(known, job.status.phase)
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
        """Queue the jobs that are due, and set a timer for the next one."""
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

    def _keep(self, job: PaddleJob) -> _JobProgress:
        key = job.metadata.key
        kept = self._kept.get(key)
        if kept is None or kept.uid != job.metadata.uid:
            for gone in [other for other in self._kept if other not in self._state.jobs]:
                del self._kept[gone]
                self._pending.discard(gone)
            kept = self._kept[key] = _JobProgress(job)
        kept.total = steps.declared_total(job)
        return kept

    def _is_reported(self, kept: _JobProgress) -> bool:
        return asyncio.get_running_loop().time() < kept.reported_at + REPORTS_WIN_SECONDS

    def _write_soon(self, job: PaddleJob, kept: _JobProgress, *, at_once: bool) -> None:
        # Users wait for the first step, loss and remaining time, which arrive separately.
        if at_once or not _columns(self._merge(kept)) <= kept.shown:
            kept.due_at = -math.inf
        self._pending.add(job.metadata.key)
        self._news.set()

    def _merge(self, kept: _JobProgress) -> TrainingProgress:
        known = kept.known
        assert known is not None
        if self._is_reported(kept):
            known = steps.of_total(known, kept.total)
            if kept.logged is not None:
                known = _fill_in(known, kept.logged)
        if kept.update is not None and kept.update.attempt >= known.attempt:
            known = _apply_update(known, kept.update, is_reported=self._is_reported(kept))
        return known

    async def _write(self, key: ObjectKey) -> None:
        job, kept = self._state.job(key), self._kept.get(key)
        if job is None or kept is None or job.metadata.uid != kept.uid:
            return
        known = self._merge(kept)
        kept.shown = {each for each in kept.shown if each[0] == known.attempt} | _columns(known)
        fresh = self.unwritten_progress(job)
        if fresh is None:
            return
        new = self._with_progress(job, fresh, kept)
        metadata = {"uid": kept.uid}
        if msgspec.structs.replace(new, progress=job.status.progress) != job.status:
            # The reconciler writes these counters too, so its values must not be overwritten.
            metadata["resourceVersion"] = job.metadata.resource_version
        patch = {"metadata": metadata, "status": status_patch(job.status, new)}
        # Set before the write, so that urgent progress that arrives during the write can reset it.
        kept.due_at = asyncio.get_running_loop().time() + WRITE_SECONDS
        try:
            await self._client.patch(PADDLE_JOBS, key.namespace, key.name, patch, subresource="status")
        except errors.KubeError as error:
            log.debug("%s: progress not written: %s", key, error)
            if not isinstance(error, errors.REFUSALS) and self._kept.get(key) is kept:
                # Retry: an ended job sends no further progress.
                self._pending.add(key)
                self._news.set()
            if isinstance(error, errors.ConflictError):
                kept.due_at = asyncio.get_running_loop().time() + RETRY_SECONDS
        else:
            if new.last_recovery is not None and not recovery.is_complete(job.status):
                self._on_recovery(new.last_recovery)

    def _with_progress(self, job: PaddleJob, fresh: TrainingProgress, kept: _JobProgress) -> PaddleJobStatus:
        """Return the status with new progress, and with progressMark, goodput and lastRecovery for it."""
        old = job.status
        late = kept.earlier if fresh.attempt >= old.first_process_attempt else fresh
        old = steps.add_late_progress(old, late)
        if goodput.passes_mark(old, fresh):
            marked = msgspec.structs.replace(job, status=old)
            spent = goodput.goodput_at(marked, self._now().replace(microsecond=0))
            old = change_status(old, goodput=spent)
        return change_status(old, progress=fresh, last_recovery=self._recovery(job, kept))

    def _recovery(self, job: PaddleJob, kept: _JobProgress) -> Recovery | None:
        """Return the ledger of the last recovery with the parts that are known now."""
        status, first = job.status, kept.first_steps
        known = status.last_recovery
        if known is None or first is None or known.total_seconds is not None:
            return known
        key, began = job.metadata.key, status.attempt_time
        pods = self._state.pods.find("owner", job.metadata.uid)
        if known.kind == RecoveryKind.IN_PLACE and any(attempt_of(pod) >= known.attempt for pod in pods):
            # A pod did not answer, and was replaced after the restart had begun.
            known = msgspec.structs.replace(known, kind=RecoveryKind.MIXED)
        age = (self._now() - began).total_seconds() if began else math.inf
        began_at = asyncio.get_running_loop().time() - age
        return recovery.fill_in(known, self._state.memory(key).moments, first, began_at)


def _columns(known: TrainingProgress) -> set[tuple[int, str]]:
    return {(known.attempt, name) for name in ("step", "loss", "eta") if getattr(known, name)}


def _fill_in(known: TrainingProgress, logged: TrainingProgress) -> TrainingProgress:
    """Add fields that only the log has: total work, and throughput in samples instead of steps."""
    return msgspec.structs.replace(
        known,
        percent=logged.percent if known.percent is None else known.percent,
        eta=known.eta or logged.eta,
        throughput=logged.throughput or known.throughput,
    )


def _apply_update(
    known: TrainingProgress, update: TrainingProgress, *, is_reported: bool
) -> TrainingProgress:
    """Use percentage and remaining time of an update, and its loss and epoch unless they are reported."""
    first, second = (known, update) if is_reported else (update, known)
    return msgspec.structs.replace(
        known,
        percent=known.percent if update.percent is None else update.percent,
        eta=update.eta or known.eta,
        loss=first.loss or second.loss,
        epoch=first.epoch or second.epoch,
        epochs=first.epochs or second.epochs,
    )
