"""Informers feed a queue, workers take keys from it and reconcile; one bad job harms no other."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime

from paddlejob.api.meta import ObjectKey
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.core.actions import Event
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.consistency import Consistency
from paddlejob.kube.events import EventRecorder, ObjectReference
from paddlejob.kube.workqueue import Priority, WorkQueue
from paddlejob.operator.metrics import Metrics, WorldCollector
from paddlejob.operator.reconciler import Reconciler, Result
from paddlejob.operator.resources import PADDLE_JOBS
from paddlejob.operator.settings import OperatorSettings
from paddlejob.operator.world import Touch, World

log = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0
"""How long the end of the process may wait for the reconciles under way."""


class Controller:
    """Everything between the watches and the writes of one operator process."""

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings,
        *,
        rng: random.Random,
        now: Callable[[], datetime],
        recorder: EventRecorder,
        metrics: Metrics | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._now: Callable[[], datetime] = lambda: client.server_now() or now()
        self._recorder = recorder
        self.metrics = metrics or Metrics()
        self.queue: WorkQueue[ObjectKey] = WorkQueue(rng=rng, observe_wait=self.metrics.queue_seconds.observe)
        self.world = World(client, settings, self._touched, rng)
        self.consistency = Consistency(self.world.caches)
        self._reconciler = Reconciler(
            client, self.world, self.consistency, settings, now=self._now, tell=self._tell
        )
        self.metrics.registry.register(WorldCollector(self.world, self.queue, self.consistency, recorder))

    async def watch(self) -> None:
        """Keep the caches up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.world.informers:
                group.create_task(informer.run(), name=f"watch {informer.resource.plural}")
            group.create_task(self.world.gangs.run(), name="watch pod groups")

    async def synced(self) -> None:
        """Return when every cache has been complete once; to decide before would be to decide blindly."""
        for informer in self.world.informers:
            await informer.synced.wait()
        await self.world.gangs.settled()

    async def work(self) -> None:
        """Reconcile until cancelled; reconciles under way then finish first, if they may still write."""
        await self.synced()
        workers = [
            asyncio.create_task(self._worker(), name=f"worker {number}")
            for number in range(self._settings.workers)
        ]
        try:
            # Cancelling this cancels no worker, as it would with gather.
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
                with self.metrics.pass_seconds.time():
                    await self._pass(key)
            finally:
                self.queue.done(key)

    async def _pass(self, key: ObjectKey) -> None:
        """Reconcile one job. Whatever goes wrong stays with this job."""
        try:
            async with asyncio.timeout(self._settings.pass_timeout_seconds):
                result = await self._reconciler.reconcile(key)
        except (errors.KubeError, TimeoutError) as error:
            log.warning("%s: the pass failed and is retried: %s", key, error or type(error).__name__)
            self._again(key, "error")
        except Exception:
            log.exception("%s: a defect in the operator; the pass is retried", key)
            self._again(key, "defect")
        else:
            self._after(key, result)

    def _after(self, key: ObjectKey, result: Result | float) -> None:
        if isinstance(result, float):
            self.queue.forget(key)
            self.queue.add(key, after_seconds=result)
            self.metrics.passes.labels("timed").inc()
        elif result is Result.SETTLED:
            self.queue.forget(key)
            self.metrics.passes.labels(result.value).inc()
        else:
            self._again(key, result.value)

    def _again(self, key: ObjectKey, outcome: str) -> None:
        self.metrics.passes.labels(outcome).inc()
        self.queue.retry(key)

    def _touched(self, key: ObjectKey, touch: Touch) -> None:
        priority = Priority.STARTUP if touch.initial else Priority.REQUEST
        delay = 0.0
        if touch.child:
            priority = min(priority, Priority.CHANGE)
            delay = self._settings.idle_batch_seconds if touch.idle else self._settings.batch_seconds
        self.queue.add(key, priority=priority, after_seconds=delay)

    def _tell(self, job: PaddleJob, event: Event) -> None:
        regarding = ObjectReference.to(PADDLE_JOBS, job.metadata)
        self._recorder.record(regarding, str(event.type), event.reason, event.message)
        log.info("%s: %s: %s", job.metadata.key, event.reason, event.message)
        self._count(job, event.reason)

    def _count(self, job: PaddleJob, reason: str) -> None:
        created = job.metadata.creation_timestamp
        if reason in (Phase.COMPLETED, Phase.FAILED):
            self.metrics.ended.labels(reason).inc()
        elif reason == Phase.RUNNING and job.status.start_time is None and created is not None:
            self.metrics.start_seconds.observe((self._now() - created).total_seconds())
