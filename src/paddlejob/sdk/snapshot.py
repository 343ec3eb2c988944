"""Snapshots of a job, and how they are shown: in place in a notebook, line by line elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import html
import importlib
import sys
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus
from paddlejob.client.errors import ClientError, sentence
from paddlejob.client.job import Job, describe
from paddlejob.client.logs.model import LogQuery
from paddlejob.client.logs.training_metrics import MAX_LINES, RANK, Metrics
from paddlejob.dashboard.rows import detail_of, rank_of
from paddlejob.dashboard.standalone import page
from paddlejob.kube.errors import KubeError
from paddlejob.training.log_lines import Progress, training_progress
from paddlejob.training.steps import at_end, declared_total

LAPTOP = "laptop"
"""The place of runs on this machine; other places are clusters."""
MAX_POINTS = 500
UPDATE_SECONDS = 3.0
"""Minimum time between two updates of a notebook cell: each one sends the whole page."""
_FRAME = "width:100%;height:36em;border:1px solid rgba(128,128,128,.4);border-radius:6px"


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


def show_function() -> Callable[[JobSnapshot], None]:
    """Return a function that shows a job in place of the last one, or prints a line if it has changed."""
    return _Notebook().show if _in_notebook() else _Lines().show


def render(snapshot: JobSnapshot) -> str:
    """Return the page of a job in a frame. Notebooks that remove frames show the text inside."""
    data = {"snapshot": _page_data(snapshot)}
    text = str(snapshot)
    return (
        f'<iframe title="{html.escape(snapshot.name)}" style="{_FRAME}" '
        f'srcdoc="{html.escape(page(snapshot.name, text, data))}">{html.escape(text)}</iframe>'
    )


def _page_data(snapshot: JobSnapshot) -> dict[str, Any]:
    detail = detail_of(snapshot.namespace, snapshot.name, snapshot.state)
    points = snapshot.metrics.points
    # The newest point stays.
    shown = points[:: -(len(points) // MAX_POINTS + 1)][::-1]
    return {
        "job": {**detail, "key": "", "progress": _progress(snapshot)},
        "isLocal": snapshot.where == LAPTOP,
        "place": snapshot.where,
        "ranks": snapshot.ranks,
        "points": shown,
        "trouble": snapshot.trouble,
        "time": round(1000 * snapshot.time),
    }


def _progress(snapshot: JobSnapshot) -> dict[str, Any] | None:
    status = snapshot.state.status
    progress = training_progress(snapshot.metrics.tracker, snapshot.time) or status.progress
    if progress is not None and status.phase.is_terminal:
        progress = at_end(progress, status.phase)
    return msgspec.to_builtins(progress) if progress else None


def _in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which shows HTML and can change it."""
    # A process that has not imported IPython is not a kernel.
    module: Any = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


class _Notebook:
    def __init__(self) -> None:
        self._handle: Any = None
        self._shown: tuple[object, ...] = ()
        self._next_update = 0.0

    def show(self, snapshot: JobSnapshot) -> None:
        text = str(snapshot)
        is_over = snapshot.state.status.phase.is_terminal
        if (text, snapshot.ranks) == self._shown or (time.monotonic() < self._next_update and not is_over):
            return
        self._shown = (text, snapshot.ranks)
        self._next_update = time.monotonic() + UPDATE_SECONDS
        bundle = {"text/html": render(snapshot), "text/plain": text}
        if self._handle is None:
            ipython: Any = importlib.import_module("IPython.display")
            self._handle = ipython.display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


class _Lines:
    def __init__(self) -> None:
        self._shown = ""

    def show(self, snapshot: JobSnapshot) -> None:
        if (text := str(snapshot)) != self._shown:
            self._shown = text
            print(text, flush=True)
