"""`Job`: the same object for a run on a laptop and a job on a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Generator, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from paddlejob.api.v1 import PaddleJobStatus, Phase
from paddlejob.client import manifest as manifests
from paddlejob.client.cluster import Cluster
from paddlejob.client.errors import ClientError, InvalidJobError
from paddlejob.client.job import FirstError, Jobs, describe
from paddlejob.client.job import Job as ClientJob
from paddlejob.client.local_runs import LocalJob, LocalRuns
from paddlejob.client.logs.model import LogItem, LogQuery, Marker
from paddlejob.client.logs.training_metrics import Metrics, Point
from paddlejob.client.streams.processes import RankProcess
from paddlejob.client.streams.stacks import format_stacks
from paddlejob.kube.errors import KubeError
from paddlejob.sdk import snapshot
from paddlejob.sdk.background import BACKGROUND
from paddlejob.sdk.errors import JobError, JobFailed
from paddlejob.sdk.manifest import to_yaml
from paddlejob.sdk.snapshot import LAPTOP

if TYPE_CHECKING:
    from paddlejob.client.explain import Explanation
    from paddlejob.training.log_lines import Progress

SNAPSHOT_SECONDS = 2.0
"""Time limit of reading a job to show it. Then its last known state is shown."""

CLUSTER = "cluster"

_Jobs = list["Job"]
_Points = list[Point]


class Line(str):
    """A log line with its rank, attempt and time."""

    __slots__ = ("attempt", "rank", "time")

    rank: str
    """Such as worker-0; empty for a note between the lines, such as a restart."""
    attempt: int
    time: datetime | None

    def __new__(cls, text: str, rank: str = "", attempt: int = 0, time: datetime | None = None) -> Self:
        line = super().__new__(cls, text)
        line.rank, line.attempt, line.time = rank, attempt, time
        return line


class Job:
    """A job, returned by `train`, `Job.get`, `Job.list` and `Job.from_yaml`.

    Methods block until they are done. Ctrl-C ends the call, and the job keeps running. Methods also work
    inside a running event loop, as in a notebook. All raise JobError.
    """

    def __init__(self, job: ClientJob, where: str) -> None:
        self._job = job
        self._metrics = Metrics()
        self.where = where
        """laptop, cluster, or the name of a kubeconfig context."""

    @classmethod
    def get(cls, name: str, *, where: str = LAPTOP, namespace: str | None = None) -> Job:
        """Return the job with this name, or the newest for `@latest`. Raises JobNotFoundError."""
        return cls(BACKGROUND.call(open_jobs(where, namespace).get, name), where)

    @classmethod
    def list(cls, *, where: str = LAPTOP, namespace: str | None = None, selector: str = "") -> _Jobs:
        """Return all jobs; on a cluster, `selector` filters by labels."""
        found = BACKGROUND.call(open_jobs(where, namespace).list, selector=selector)
        return [cls(each, where) for each in found]

    @classmethod
    def from_yaml(cls, path: str | Path, *, where: str = LAPTOP, namespace: str | None = None) -> Job:
        """Submit the job in a file, as `kubectl create -f` does.

        ConfigMaps and Secrets in the same file are created and deleted with the job.
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise JobError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
        try:
            jobs, beside = manifests.read(text, str(path))
            if len(jobs) > 1:
                raise JobError(f"{path} has {len(jobs)} jobs; put each into a separate file")
            manifests.check(*jobs)
        except InvalidJobError as error:
            raise JobError(str(error)) from None
        submitted = BACKGROUND.call(open_jobs(where, namespace).submit, jobs[0], owned=beside)
        return cls(submitted, where)

    @property
    def name(self) -> str:
        """The name of the job; on a laptop, the name of the run."""
        return self._job.name

    @property
    def namespace(self) -> str:
        return self._job.namespace

    @property
    def phase(self) -> str:
        """The phase now; Stopped, Interrupted or Lost for a run that ended before its job."""
        BACKGROUND.call(self._job.refresh)
        return self._job.phase

    def status(self) -> PaddleJobStatus:
        """Return the status of the job: `phase`, `reason`, `message` and more."""
        return BACKGROUND.call(self._job.refresh).status

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job has completed, at most `timeout` seconds, and return it.

        Raises JobFailed, and JobTimeoutError. `await job` does the same without blocking the event loop.
        """
        BACKGROUND.call(self._wait, timeout)
        return self

    def __await__(self) -> Generator[Any, None, Job]:
        yield from BACKGROUND.call_async(self._wait, None).__await__()
        return self

    async def _wait(self, timeout_seconds: float | None) -> None:
        state = await self._job.wait(timeout_seconds=timeout_seconds)
        if state.status.phase is Phase.FAILED:
            raise await self._failure(describe(state))

    async def _failure(self, described: str) -> JobFailed:
        error: FirstError | None = None
        advice: tuple[str, ...] = ()
        # Report the failure even if its cause cannot be fetched.
        with contextlib.suppress(ClientError, KubeError):
            error = await self._job.first_error()
            advice = tuple(each.text for each in (await self._job.explain()).advice)
        message = f"{self.name} is {described}"
        if error is None:
            return JobFailed(message, advice=advice)
        message += f"; {error.note}" if error.note else ""
        lines = [*error.lines]
        while lines and not lines[-1].strip():
            lines.pop()
        return JobFailed(message, error.rank, error.exit_code, tuple(lines), advice)

    def logs(
        self,
        *,
        follow: bool = False,
        rank: int | str = "all",
        tail: int | None = None,
        since_seconds: float | None = None,
    ) -> Iterator[Line]:
        """Yield the log lines of all ranks, of one rank (0, "ps-1") or of a role ("ps").

        With `follow` it waits for the first pod, continues across restarts, and ends with the job.
        `tail` applies to each rank.
        """
        query = LogQuery(rank=str(rank), follow=follow, tail=tail, since_seconds=since_seconds)
        for item in BACKGROUND.iterate(lambda: self._job.logs(query)):
            yield from _lines(item)

    def progress(self) -> Progress | None:
        """Return the progress of the first worker: `epoch`, `step`, `loss`, `fraction`; None if unknown."""
        self._keep(BACKGROUND.call(snapshot.read_metrics, self._job))
        return self._metrics.progress or snapshot.reported_progress(self.status())

    def history(self) -> _Points:
        """Return the steps and losses of the first worker, as rows for a DataFrame."""
        self._keep(BACKGROUND.call(snapshot.read_metrics, self._job))
        return [*self._metrics.points]

    def explain(self) -> Explanation:
        """Return why the job does not run or has failed, and what to do. Print the result to read it."""
        return BACKGROUND.call(self._job.explain)

    def processes(self, rank: int | str = "all") -> tuple[RankProcess, ...]:
        """Return the processes that Paddle's launcher started, in order of rank.

        Each has `rank`, `pod`, `device`, `step`, `loss` and `last_line`. On a cluster the pods must run.
        """
        return tuple(BACKGROUND.call(lambda: self._job.processes(str(rank))))

    def stack(self, rank: int | str = "all") -> str:
        """Return the stacks of all ranks, or of some ranks. The job must have the recorder."""
        return format_stacks(BACKGROUND.call(lambda: self._job.stacks(str(rank))))

    def scale(self, workers: int) -> str:
        """Set the number of workers. This and the next methods return a message for the user."""
        if type(workers) is not int:
            raise JobError(f"scale({workers!r}): give a whole number of workers")
        return BACKGROUND.call(self._job.scale, workers)

    def suspend(self) -> str:
        """Stop the pods until `resume`."""
        return BACKGROUND.call(self._job.suspend)

    def resume(self) -> str:
        """Start the pods of a suspended job."""
        return BACKGROUND.call(self._job.resume)

    def stop(self) -> str:
        """Stop the pods and keep the job."""
        return BACKGROUND.call(self._job.stop)

    def retry(self) -> Job:
        """Submit a finished job again as a new job, and return the new job."""
        return Job(BACKGROUND.call(self._job.retry), self.where)

    def delete(self, *, force: bool = False) -> str:
        """Delete the job with its pods, logs and files. On a laptop, a live run needs `force`."""
        return BACKGROUND.call(lambda: self._delete(force=force))

    async def _delete(self, *, force: bool) -> str:
        if isinstance(self._job, LocalJob) and await self._job.is_at_work():
            if not force:
                raise JobError(
                    f"{self.name} is running; wait until it ends, or stop it with delete(force=True)"
                )
            with contextlib.suppress(ClientError):
                # The run may end before it is stopped.
                await self._job.stop()
            async for _ in self._job.watch():
                pass
        return await self._job.delete()

    def to_yaml(self) -> str:
        """Return the job and its files as YAML for `kubectl create -f` and `paddlejob run`."""
        return to_yaml(BACKGROUND.call(self._job.manifests))

    def watch(self, *, interval_seconds: float = 1.0) -> None:
        """Show the job until it has finished: in place in a notebook, line by line elsewhere.

        Ctrl-C stops watching; the job keeps running.
        """
        metrics = self._metrics = Metrics()
        show = snapshot.show_function()
        for each in BACKGROUND.iterate(
            lambda: snapshot.watch(self._job, self.where, metrics, interval_seconds)
        ):
            show(each)

    def __repr__(self) -> str:
        return str(self._snapshot(with_metrics=False))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001 - called by IPython
        del cycle
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        return snapshot.render(self._snapshot(with_metrics=True))

    def _snapshot(self, *, with_metrics: bool) -> snapshot.JobSnapshot:
        """Return the current state of the job, or its last known state if reading fails or takes too long."""

        async def take() -> snapshot.JobSnapshot:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SNAPSHOT_SECONDS):
                    if with_metrics:
                        with contextlib.suppress(ClientError, KubeError):
                            self._keep(await snapshot.read_metrics(self._job))
                    return await snapshot.take_snapshot(self._job, self.where, self._metrics)
            trouble = f"no answer within {SNAPSHOT_SECONDS:g}s"
            return snapshot.last_snapshot(self._job, self.where, self._metrics, trouble=trouble)

        return BACKGROUND.call(take)

    def _keep(self, metrics: Metrics) -> None:
        # The log is deleted with its pod. Keep the metrics read before.
        if metrics.last_line or not self._metrics.last_line:
            self._metrics = metrics


def _lines(item: LogItem) -> Iterator[Line]:
    if isinstance(item, Marker) and not item.is_part_of_log:
        return
    for line in item.lines():
        yield Line(line.text, line.rank, line.attempt, line.time)


def open_jobs(where: str, namespace: str | None = None, *, python: str = "") -> Jobs:
    """Return the jobs of `laptop`, `cluster` (the current context) or a named context. Raises JobError."""
    if where == LAPTOP:
        if namespace:
            raise JobError("namespace= works only on a cluster; runs on a laptop have no namespace")
        return LocalRuns.open(python=python or sys.executable)
    if python:
        raise JobError("python= works only with where='laptop'; on a cluster the image has the interpreter")

    async def open_cluster() -> Cluster:
        return Cluster.open(context=None if where == CLUSTER else where, namespace=namespace)

    cluster = BACKGROUND.call(open_cluster)
    BACKGROUND.close_with(cluster, cluster.client.close)
    return cluster
