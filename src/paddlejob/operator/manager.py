"""The operator process: leader election, ports, signals."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import socket
import uuid
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from paddlejob.api.v1 import PaddleJob, TrainingProgress
from paddlejob.kube.client import Client
from paddlejob.kube.events import EventRecorder
from paddlejob.kube.lease import LeaderElector
from paddlejob.kube.transport.cluster import ClusterConfig
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.operator import serving
from paddlejob.operator.controller import Controller
from paddlejob.operator.metrics import Metrics
from paddlejob.operator.progress import ProgressReader
from paddlejob.operator.reports.intake import ReportIntake
from paddlejob.operator.reports.writer import ProgressWriter
from paddlejob.operator.settings import OperatorSettings, ProcessSettings

log = logging.getLogger(__name__)

COMPONENT = "paddlejob-operator"
LEASE_NAME = "paddlejob-operator"
MAX_RESPONSE_BYTES = 48 << 20
"""Maximum size of a response, which is in memory twice while it is read; larger lists are paged."""
GARBAGE_THRESHOLDS = (10_000, 20, 20)
"""Thresholds of the garbage collector. With the defaults, it takes 5 % of the operator's CPU time.

The operator creates almost no reference cycles.
"""


async def run(config: ClusterConfig, settings: OperatorSettings, process: ProcessSettings) -> None:
    """Run until SIGTERM or SIGINT.

    Raises LeaseLostError when another process has become the leader: the caller exits and is restarted.
    """
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    metrics = Metrics()
    rng = random.Random()  # noqa: S311  (jitter for retries, not a secret)
    async with AsyncExitStack() as stack:
        transport = HttpTransport(config, response_size_limit=MAX_RESPONSE_BYTES)
        client = await stack.enter_async_context(Client(transport, observe=metrics.observe_request, rng=rng))

        def now() -> datetime:
            return client.server_now() or _now()

        events = EventRecorder(client, COMPONENT, rng=rng, now=now)
        await stack.enter_async_context(events)
        namespace = process.lease_namespace or config.namespace or "default"
        elector = await _elector(stack, config, namespace, rng) if process.leader_election else None
        writer = client.with_fence(lambda: elector.is_leader) if elector else client
        controller = Controller(writer, settings, rng=rng, now=_now, events=events, metrics=metrics)
        await _serve(stack, controller, metrics, process)
        progress = ProgressTracking(writer, controller, settings, now=now, namespace=namespace)
        await _until_signalled(lead(controller, elector, progress))


async def _elector(
    stack: AsyncExitStack, config: ClusterConfig, namespace: str, rng: random.Random
) -> LeaderElector:
    # A separate connection: a renewal must not queue behind the requests of jobs.
    client = await stack.enter_async_context(Client(HttpTransport(config, connection_limit=1), rng=rng))
    return LeaderElector(
        client,
        namespace=namespace,
        name=LEASE_NAME,
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        rng=rng,
        now=_now,
    )


class ProgressTracking:
    """The parts of a leader that track training progress. Reconciling does not depend on them."""

    def __init__(
        self,
        client: Client,
        controller: Controller,
        settings: OperatorSettings,
        *,
        now: Callable[[], datetime],
        namespace: str,
    ) -> None:
        state = controller.state
        self._controller = controller
        self.writer = writer = ProgressWriter(
            client, state, now=now, on_recovery=controller.metrics.observe_recovery
        )
        reader = ProgressReader(client, state, writer, controller.record_event)
        self._reader = reader if settings.progress_from_logs else None
        self.intake = (
            ReportIntake(
                client,
                state,
                writer,
                settings.reports,
                now=now,
                namespace=namespace,
                record_event=controller.record_event,
            )
            if settings.reports.url
            else None
        )
        watchdog = self.intake.watchdog if self.intake else None
        self._parts = (writer, self._reader, self.intake, watchdog)

    async def start(self) -> list[asyncio.Task[None]]:
        """Start the tasks; return when the recorder is available to pods, or after a timeout."""
        tasks = [
            asyncio.create_task(part.run(), name=type(part).__name__)
            for part in self._parts
            if part is not None
        ]
        self._controller.use_progress(self._latest)
        if self.intake is not None:
            await self.intake.wait_until_prepared()
        return tasks

    async def _latest(self, job: PaddleJob) -> TrainingProgress | None:
        """Return progress that is not yet in the status, from reports or otherwise from the log."""
        if self._reader is not None and not self.writer.knows_steps(job.metadata.key):
            await self._reader.catch_up(job.metadata.key)
        return self.writer.unwritten_progress(job)


async def lead(
    controller: Controller, elector: LeaderElector | None, progress: ProgressTracking | None = None
) -> None:
    """Watch always, so that a standby is ready; reconcile only as the leader.

    An operator joins the election only once the API server has its version of the CustomResourceDefinition;
    until then an operator that fits the installed definition may lead.
    A new leader lists everything again: watches of different kinds lag by different amounts, so a job's new
    status may be seen next to its old pods, which then look lost. The consistency check covers only the
    operator's own writes.
    """

    async def work() -> None:
        if elector is not None:
            controller.relist()
        controller.metrics.leader.set(1)
        log.info("reconciling jobs")
        background = await progress.start() if progress else []
        if controller.history is not None:
            background.append(asyncio.create_task(controller.history.run(), name="record history"))
        for task in background:
            task.add_done_callback(_log_failure)
        try:
            await controller.work()
        finally:
            controller.metrics.leader.set(0)
            for task in background:
                task.cancel()
            if background:
                await asyncio.wait(background)

    async def lead_with_definition() -> None:
        await controller.schema.wait_until_complete()
        await (work() if elector is None else elector.run(work))

    watching = asyncio.create_task(controller.watch(), name="watch")
    leading = asyncio.create_task(lead_with_definition(), name="lead")
    try:
        await asyncio.wait({watching, leading}, return_when=asyncio.FIRST_COMPLETED)
        first = leading if leading.done() else watching
    finally:
        # Stop the work before the watches that it depends on.
        for task in (leading, watching):
            task.cancel()
            await asyncio.wait({task})
    # Not a TaskGroup, which would wrap LeaseLostError in an ExceptionGroup.
    first.result()


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log a background task that failed; jobs are still reconciled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("bug in the operator: %s ended", task.get_name(), exc_info=error)


async def _serve(
    stack: AsyncExitStack, controller: Controller, metrics: Metrics, process: ProcessSettings
) -> None:
    state = controller.state
    probes = {
        "/healthz": serving.probe(lambda: serving.stale_watches(state)),
        "/readyz": serving.probe(lambda: [*controller.schema.problems(), *serving.unsynced_kinds(state)]),
    }
    health = await stack.enter_async_context(serving.serve(process.health_address, probes))
    exposed = {"/metrics": serving.text(metrics.render)}
    port = await stack.enter_async_context(serving.serve(process.metrics_address, exposed))
    log.info("health on port %s, metrics on port %s, process %s", health, port, os.getpid())


async def _until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Run the work until SIGTERM or SIGINT; a second signal kills the process."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work, name="operator")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, task, number)
    try:
        await task
    except asyncio.CancelledError:
        log.info("stopped")
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _stop(task: asyncio.Task[None], number: signal.Signals) -> None:
    log.info("%s: finishing the running reconciles", number.name)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)
    task.cancel()


def _now() -> datetime:
    return datetime.now(UTC)
