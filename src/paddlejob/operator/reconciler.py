"""Reconciles one job: takes a snapshot, plans, writes the status, records events and runs the actions."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from datetime import datetime

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import ObjectKey, ObjectMeta
from paddlejob.api.pod import ConfigMap
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase, TrainingProgress
from paddlejob.core.actions import Create, Event, Plan
from paddlejob.core.attempts.recovery import Moments
from paddlejob.core.plan import plan
from paddlejob.core.policy.cleanup import stuck_terminating
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.consistency import Consistency
from paddlejob.operator.executor import Executor
from paddlejob.operator.limits import needs_templates
from paddlejob.operator.settings import OperatorSettings
from paddlejob.operator.state import ClusterState, StaleCacheError
from paddlejob.operator.status import DroppedFieldsError, StatusSchema, StoredStatus, status_patch

RecordEvent = Callable[[PaddleJob, Event], None]
LatestProgress = Callable[[PaddleJob], Awaitable[TrainingProgress | None]]
"""Returns the progress of a job that its status lacks, None if there is none."""
OnStatus = Callable[[PaddleJob, PaddleJobStatus], Awaitable[None]]
"""Called with each written status, before the actions run."""


CONFIRM_SECONDS = 30.0
"""Delay after which a job with writes is reconciled again, if no watch event triggers it earlier.

There may be no event: an object created and deleted while a watch is interrupted appears in no list.
"""


class Result(enum.Enum):
    """The result of a reconcile that sets no time for the next one."""

    SETTLED = "settled"
    """Nothing to do until an object changes."""
    STALE = "stale"
    """The snapshot was out of date; reconcile again soon."""
    REFUSED = "refused"
    """The API server refused a write. The next reconcile retries it; the job's message has the error."""
    UNRECORDED = "unrecorded"
    """The API server dropped status fields, so no action was run; reconcile again later."""


class Reconciler:
    """Turns plans into writes. All state kept here may be lost at any time."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        consistency: Consistency,
        settings: OperatorSettings,
        schema: StatusSchema,
        *,
        now: Callable[[], datetime],
        record_event: RecordEvent,
        on_status: OnStatus | None = None,
    ) -> None:
        self.latest_progress: LatestProgress | None = None
        """Set while the progress of jobs is tracked."""
        self._client = client
        self._state = state
        self._consistency = consistency
        self._settings = settings
        self._schema = schema
        self._now = now
        self._record_event = record_event
        self._on_status = on_status
        self._executor = Executor(
            client,
            consistency,
            writes_per_job=settings.writes_per_job,
            on_recorder_obstacle=state.note_recorder_obstacle,
        )

    async def reconcile(self, key: ObjectKey) -> Result | float:
        """Reconcile one job; a number is the time in seconds after which to reconcile it again.

        Raises KubeError if the reconcile could not be finished; the caller retries with backoff.
        """
        if not self._consistency.is_ready(key):
            return Result.STALE
        began, job = asyncio.get_running_loop().time(), self._state.job(key)
        if job is None:
            self._forget(key)
            return await self._clear_remains(key)
        try:
            job, config_map = await self._load(job)
            await self._schema.confirm(key)
            decided = await self._decide(job, config_map)
            held_back = await self._write_status(job, decided)
        except DroppedFieldsError:
            return Result.UNRECORDED
        except (errors.ConflictError, StaleCacheError):
            return Result.STALE
        except errors.NotFoundError:
            self._forget(key)
            return Result.SETTLED
        self._time_recovery(job, decided.status, began)
        for event in decided.events:
            self._record_event(job, event)
        if self._on_status is not None:
            await self._on_status(job, decided.status)
        return await self._act(job, decided, held_back)

    async def _act(self, job: PaddleJob, decided: Plan, held_back: float | None) -> Result | float:
        """Run the stages; failures are kept for the status message of the next reconcile."""
        outcome = await self._executor.run(job, decided.stages)
        memory = self._state.memory(job.metadata.key)
        if memory.moments is not None and outcome.went_well:
            now = asyncio.get_running_loop().time()
            memory.moments = memory.moments.passed(decided.milestone, now)
        recovered = not decided.is_delayed and bool(memory.failures)
        if recovered:
            memory.failures = ()
        if outcome.failures:
            memory.failures = tuple(outcome.failures)
            return Result.REFUSED
        if outcome.stale:
            return Result.STALE
        for event in decided.events_when_done:
            self._record_event(job, event)
        if recovered:
            return 0.0
        confirm = CONFIRM_SECONDS if decided.stages else None
        waits = [wait for wait in (held_back, decided.requeue_after_seconds, confirm) if wait is not None]
        return min(waits) if waits else Result.SETTLED

    def _time_recovery(self, job: PaddleJob, new: PaddleJobStatus, began: float) -> None:
        """Note when a failure was seen, if its restart is on record now; the reconcile began at `began`."""
        if new.attempt == job.status.attempt or new.last_recovery == job.status.last_recovery:
            return
        memory, failed = self._state.memory(job.metadata.key), new.last_failure
        pod = self._state.pods.get(ObjectKey(job.metadata.namespace, failed.pod)) if failed else None
        process = memory.processes.get(pod.metadata.uid) if pod else None
        seen = process.noted if process is not None and process.is_down else began
        memory.moments = Moments(new.attempt, seen, asyncio.get_running_loop().time())

    async def _clear_remains(self, key: ObjectKey) -> Result | float:
        """Force-delete the pods that a deleted job left on nodes that no longer exist."""
        late = self._settings.jobs.force_delete_seconds
        stuck, wait = stuck_terminating(self._state.remains(key), self._now(), late)
        if stuck:
            outcome = await self._executor.run(PaddleJob(ObjectMeta(key.name, key.namespace)), (stuck,))
            return Result.SETTLED if outcome.went_well else Result.REFUSED
        return Result.SETTLED if wait is None else wait

    async def _load(self, job: PaddleJob) -> tuple[PaddleJob, ConfigMap | None]:
        """Return the whole job and its ConfigMap; a finished job needs neither."""
        if not needs_templates(job):
            return job, None
        return await self._state.with_templates(job), await self._state.environment(job)

    async def _decide(self, job: PaddleJob, config_map: ConfigMap | None) -> Plan:
        """Return the plan. Before an attempt ends, read the latest progress, which the plan records."""
        decided = self._plan(job, config_map)
        if self.latest_progress is not None and _ends_attempt(job.status, decided.status):
            progress = await self.latest_progress(job)
            if progress is not None:
                status = msgspec.structs.replace(job.status, progress=progress)
                decided = self._plan(msgspec.structs.replace(job, status=status), config_map)
        self._state.reserve_host_port(job.metadata.key, decided.status)
        return decided

    def _plan(self, job: PaddleJob, config_map: ConfigMap | None) -> Plan:
        now = self._now().replace(microsecond=0)
        return plan(self._state.snapshot(job, now, config_map))

    async def _write_status(self, job: PaddleJob, decided: Plan) -> float | None:
        """Write the status if it changed; return the delay if only counts changed and the write is postponed.

        Creations are always preceded by a write, even an empty one. The API server refuses it if the job has
        changed since the snapshot, for example because another operator has ended it.
        Raises DroppedFieldsError if the API server did not store the whole status; no action may follow.
        """
        status, creates = decided.status, _creates(decided)
        key = job.metadata.key
        if status == job.status and not creates:
            return None
        clock = asyncio.get_running_loop().time()
        due = self._state.memory(key).status_written_at + self._settings.counts_pause_seconds
        if due > clock and not creates and not _is_urgent(job.status, status):
            return due - clock
        metadata = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
        changes = status_patch(job.status, status)
        patch = {"metadata": metadata, "status": changes}
        written = await self._client.patch(
            PADDLE_JOBS, job.metadata.namespace, job.name, patch, subresource="status", type=StoredStatus
        )
        self._consistency.record_write(key, PADDLE_JOBS, written.metadata.resource_version)
        self._state.memory(key).status_written_at = clock
        self._schema.check_write(changes, written.status)
        return None

    def _forget(self, key: ObjectKey) -> None:
        self._consistency.forget(key)
        self._state.forget(key)


def _ends_attempt(old: PaddleJobStatus, new: PaddleJobStatus) -> bool:
    return new.attempt != old.attempt or (new.phase is Phase.FAILED and not old.phase.is_terminal)


def _creates(decided: Plan) -> bool:
    return any(isinstance(action, Create) for stage in decided.stages for action in stage)


def _is_urgent(old: PaddleJobStatus, new: PaddleJobStatus) -> bool:
    return _without_counts(old) != _without_counts(new)


def _without_counts(status: PaddleJobStatus) -> PaddleJobStatus:
    return msgspec.structs.replace(
        status, ps=None, worker=None, heter=None, message="", conditions=(), mode=names.KIND
    )
