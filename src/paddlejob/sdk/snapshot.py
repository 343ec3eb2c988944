"""What there is to see of a job at one moment, and the stream of such moments while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

import msgspec

from paddlejob.api.v1 import PaddleJob, PaddleJobStatus
from paddlejob.client import ranks
from paddlejob.client.errors import ClientError, sentence
from paddlejob.client.job import Job, describe
from paddlejob.client.logs.model import LogQuery
from paddlejob.client.logs.training_metrics import MOST_LINES, RANK, Metrics
from paddlejob.kube.errors import KubeError
from paddlejob.progress import Progress


class RankState(msgspec.Struct, frozen=True):
    """One rank."""

    rank: str
    state: str
    restarts: int = 0


class JobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A job at one moment."""

    name: str
    where: str
    state: PaddleJob
    metrics: Metrics
    ranks: tuple[RankState, ...] = ()
    trouble: str = ""
    """Why this is how the job was last, and not how it is."""
    time: float = msgspec.field(default_factory=time.time)

    @property
    def progress(self) -> Progress | None:
        """How far training is, by the log if it can be read, else by the job's status."""
        return self.metrics.progress or reported(self.state.status)

    def __str__(self) -> str:
        """Describe it in one line."""
        progress_text = str(self.progress or "")
        parts = [
            f"{self.name} on {self.where}: {describe(self.state)}",
            *([progress_text] if progress_text else []),
        ]
        return ", ".join(parts) + (f" ({self.trouble})" if self.trouble else "")


def reported(status: PaddleJobStatus) -> Progress | None:
    """Return the progress that the operator wrote into the status of a job, if there is any."""
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


async def metrics_of(job: Job) -> Metrics:
    """Read the log of the first worker."""
    metrics = Metrics()
    async with contextlib.aclosing(job.lines(LogQuery(rank=RANK, tail=MOST_LINES))) as lines:
        async for line in lines:
            metrics.feed(line)
    return metrics


async def take(job: Job, where: str, metrics: Metrics) -> JobSnapshot:
    """Return the job as it is; where that cannot be learnt, as it was last."""
    found: tuple[RankState, ...] = ()
    trouble = ""
    try:
        await job.refresh()
        found = tuple(
            RankState(
                ranks.rank_of(job.state.name, pod.metadata.name),
                ranks.state_of(job.state, pod),
                sum(each.restart_count for each in pod.status.container_statuses),
            )
            for pod in await job.pods()
        )
    except (ClientError, KubeError) as error:
        trouble = sentence(error)
    return last(job, where, metrics, ranks=found, trouble=trouble)


def last(
    job: Job, where: str, metrics: Metrics, *, ranks: tuple[RankState, ...] = (), trouble: str = ""
) -> JobSnapshot:
    """Return the job as it was last seen."""
    return JobSnapshot(
        name=job.name, where=where, state=job.state, metrics=metrics, ranks=ranks, trouble=trouble
    )


async def moments(
    job: Job, where: str, metrics: Metrics, interval_seconds: float
) -> AsyncGenerator[JobSnapshot, None]:
    """Yield the job now and after each interval, until it has ended."""
    follower = asyncio.create_task(_follow(job, metrics))
    waiter = asyncio.create_task(job.wait())
    try:
        while not waiter.done():
            yield await take(job, where, metrics)
            await asyncio.wait({waiter}, timeout=interval_seconds)
        await waiter
        await follower
        yield await take(job, where, metrics)
    finally:
        for task in (follower, waiter):
            task.cancel()
        await asyncio.gather(follower, waiter, return_exceptions=True)


async def _follow(job: Job, metrics: Metrics) -> None:
    # Without the right to read logs there is still a status to show.
    with contextlib.suppress(ClientError, KubeError):
        async with contextlib.aclosing(job.lines(LogQuery(rank=RANK, follow=True, tail=MOST_LINES))) as lines:
            async for line in lines:
                metrics.feed(line)
