"""Snapshots of a job, taken once or repeatedly while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus
from paddlejob.client.errors import ClientError, sentence
from paddlejob.client.job import Job, describe
from paddlejob.client.logs.model import LogQuery
from paddlejob.client.logs.training_metrics import MAX_LINES, RANK, Metrics
from paddlejob.dashboard.rows import rank_of
from paddlejob.kube.errors import KubeError
from paddlejob.training.log_lines import Progress
from paddlejob.training.steps import declared_total

LAPTOP = "laptop"
"""The place of runs on this machine; other places are clusters."""


class JobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state, progress and ranks of a job at one time."""

    name: str
    namespace: str
    where: str
    state: PaddleJob
    metrics: Metrics
    ranks: tuple[JsonObject, ...] = ()
    """Rows of the dashboard's table of ranks."""
    trouble: str = ""
    """Why the snapshot is not current, empty if it is."""
    time: float = msgspec.field(default_factory=time.time)

    @property
    def progress(self) -> Progress | None:
        """Progress read from the log, or else from the job's status."""
        return self.metrics.progress or reported_progress(self.state.status)

    def __str__(self) -> str:
        progress_text = str(self.progress or "")
        parts = [
            f"{self.name} on {self.where}: {describe(self.state)}",
            *([progress_text] if progress_text else []),
        ]
        return ", ".join(parts) + (f" ({self.trouble})" if self.trouble else "")


def reported_progress(status: PaddleJobStatus) -> Progress | None:
    """Return the progress in the status of a job, if there is any."""
    reported = status.progress
    if reported is None:
        return None
    return Progress(
        epoch=reported.epoch or None,
        epochs=reported.epochs or None,
        step=reported.step or None,
        steps=reported.steps or None,
        loss=float(reported.loss) if reported.loss else None,
    )


async def read_metrics(job: Job) -> Metrics:
    """Read progress and losses from the log of the first worker."""
    metrics = Metrics()
    metrics.tracker.total = declared_total(job.state)
    async with contextlib.aclosing(job.lines(LogQuery(rank=RANK, tail=MAX_LINES))) as lines:
        async for line in lines:
            metrics.feed(line)
    return metrics


async def take_snapshot(job: Job, where: str, metrics: Metrics) -> JobSnapshot:
    """Return the current state of the job, or its last known state if it cannot be read."""
    ranks: tuple[JsonObject, ...] = ()
    trouble = ""
    try:
        await job.refresh()
        ranks = tuple(rank_of(job.state, pod) for pod in await job.pods())
    except (ClientError, KubeError) as error:
        trouble = sentence(error)
    return last_snapshot(job, where, metrics, ranks=ranks, trouble=trouble)


def last_snapshot(
    job: Job, where: str, metrics: Metrics, *, ranks: tuple[JsonObject, ...] = (), trouble: str = ""
) -> JobSnapshot:
    """Return the last known state of the job."""
    return JobSnapshot(
        name=job.name,
        namespace=job.namespace,
        where=where,
        state=job.state,
        metrics=metrics,
        ranks=ranks,
        trouble=trouble,
    )


async def watch(
    job: Job, where: str, metrics: Metrics, interval_seconds: float
) -> AsyncGenerator[JobSnapshot, None]:
    """Yield a snapshot now and after each interval, until the job has finished."""
    metrics.tracker.total = declared_total(job.state)
    follower = asyncio.create_task(_follow(job, metrics))
    waiter = asyncio.create_task(job.wait())
    try:
        while not waiter.done():
            yield await take_snapshot(job, where, metrics)
            await asyncio.wait({waiter}, timeout=interval_seconds)
        await waiter
        await follower
        yield await take_snapshot(job, where, metrics)
    finally:
        for task in (follower, waiter):
            task.cancel()
        await asyncio.gather(follower, waiter, return_exceptions=True)


async def _follow(job: Job, metrics: Metrics) -> None:
    # A user who may not read logs still sees the status.
    with contextlib.suppress(ClientError, KubeError):
        async with contextlib.aclosing(job.lines(LogQuery(rank=RANK, follow=True, tail=MAX_LINES))) as lines:
            async for line in lines:
                metrics.feed(line)
