"""Runs the informers, the work queue and the workers that reconcile jobs.

An error in one job does not affect other jobs.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime

from paddlejob.api.meta import ObjectKey
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.core.actions import Event
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.consistency import Consistency
from paddlejob.kube.events import EventRecorder, ObjectReference
from paddlejob.kube.workqueue import Priority, WorkQueue
from paddlejob.operator.changes import Trigger
from paddlejob.operator.history import HistoryKeeper
from paddlejob.operator.metrics import Metrics, StateCollector
from paddlejob.operator.reconciler import LatestProgress, Reconciler, Result
from paddlejob.operator.settings import OperatorSettings
from paddlejob.operator.state import ClusterState
from paddlejob.operator.status import StatusSchema

log = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0
"""Maximum time to wait for running reconciles when the process stops."""


class Controller:
    """Connects the informers, the work queue and the reconciler of one operator process."""

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        *,
        rng: random.Random,
        now: Callable[[], datetime],
        events: EventRecorder,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._now: Callable[[], datetime] = lambda: client.server_now() or now()
        self._events = events
        self.metrics = metrics or Metrics()
        self.queue: WorkQueue[ObjectKey] = WorkQueue(
            rng=rng,
            group_of=lambda key: key.namespace,
            workers=settings.workers,
            observe_wait=self.metrics.queue_seconds.observe,
        )
        self.state = ClusterState(client, settings, self._enqueue, rng)
        self.consistency = Consistency(self.state.caches)
        self.schema = StatusSchema(client)
        self.history = (
            HistoryKeeper(client, self.state, settings.history, namespace=settings.namespace, now=self._now)
            if settings.history
            else None
        )
        self._reconciler = Reconciler(
            client,
            self.state,
            self.consistency,
            settings,
            self.schema,
            now=self._now,
            record_event=self.record_event,
            on_status=self.history.on_status if self.history else None,
        )
        self.metrics.registry.register(StateCollector(self.state, self.queue, self.consistency, events))

    def use_progress(self, latest: LatestProgress | None) -> None:
        """Set the source of a job's latest progress, which is read when an attempt ends."""
        self._reconciler.latest_progress = latest

    async def watch(self) -> None:
        """Keep the caches up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.state.informers:
                group.create_task(informer.run(), name=f"watch {informer.resource.plural}")
            group.create_task(self.state.gangs.run(), name="watch pod groups")

    async def wait_until_synced(self) -> None:
        """Wait until every cache has been listed; decisions need complete caches."""
        for informer in self.state.informers:
            await informer.synced.wait()
        await self.state.gangs.wait_until_discovered()

    def relist(self) -> None:
        """List everything again, so that the caches contain all writes made before this call."""
        for informer in (*self.state.informers, *self.state.gangs.informers):
            informer.relist()

    async def work(self) -> None:
        """Reconcile until cancelled, then finish running reconciles while this process may still write."""
        await self.wait_until_synced()
        workers = [
            asyncio.create_task(self._worker(), name=f"worker {number}")
            for number in range(self._settings.workers)
        ]
        try:
            # Unlike gather, wait does not cancel the workers when it is cancelled.
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self.queue.close()
            if self._client.may_write:
                await asyncio.wait(workers, timeout=DRAIN_SECONDS)
            for worker in workers:
                worker.cancel()
            ended = await asyncio.gather(*workers, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _worker(self) -> None:
        while (key := await self.queue.get()) is not None:
            try:
                with self.metrics.reconcile_seconds.time():
                    await self._reconcile(key)
            finally:
                self.queue.done(key)

    async def _reconcile(self, key: ObjectKey) -> None:
        """Reconcile one job; an error affects only this job."""
        try:
            async with asyncio.timeout(self._settings.reconcile_timeout_seconds):
                result = await self._reconciler.reconcile(key)
        except (errors.KubeError, TimeoutError) as error:
            log.warning("%s: reconcile failed, will be retried: %s", key, error or type(error).__name__)
            self._again(key, "error")
        except Exception:
            log.exception("%s: bug in the operator; the reconcile will be retried", key)
            self._again(key, "defect")
        else:
            self._after(key, result)

    def _after(self, key: ObjectKey, result: Result | float) -> None:
        if not isinstance(result, Result):
            self.queue.forget(key)
            self.queue.add(key, after_seconds=result)
            self.metrics.reconciles.labels("timed").inc()
        elif result is Result.SETTLED:
            self.queue.forget(key)
            self.metrics.reconciles.labels(result.value).inc()
        else:
            self._again(key, result.value)

    def _again(self, key: ObjectKey, outcome: str) -> None:
        self.metrics.reconciles.labels(outcome).inc()
        self.queue.retry(key)

    def _enqueue(self, key: ObjectKey, trigger: Trigger) -> None:
        priority = Priority.STARTUP if trigger.initial else Priority.REQUEST
        delay = 0.0
        if trigger.child:
            priority = min(priority, Priority.CHANGE)
            delay = self._settings.idle_batch_seconds if trigger.idle else self._settings.batch_seconds
        self.queue.add(key, priority=priority, after_seconds=delay)

    def record_event(self, job: PaddleJob, event: Event) -> None:
        """Record a Kubernetes event on a job, log it and count it."""
        regarding = ObjectReference.to(PADDLE_JOBS, job.metadata)
        self._events.record(regarding, str(event.type), event.reason, event.message)
        log.info("%s: %s: %s", job.metadata.key, event.reason, event.message)
        self._count(job, event.reason)

    def _count(self, job: PaddleJob, reason: str) -> None:
        created = job.metadata.creation_timestamp
        if reason in (Phase.COMPLETED, Phase.FAILED):
            self.metrics.ended.labels(reason).inc()
        elif reason == Phase.RUNNING and job.status.start_time is None and created is not None:
            self.metrics.start_seconds.observe((self._now() - created).total_seconds())
