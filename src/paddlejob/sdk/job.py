"""A job as an object: the same on a laptop and on a cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from paddlejob.api.v1 import PaddleJobStatus, Phase
from paddlejob.client import manifest as manifests
from paddlejob.client.errors import ClientError, InvalidJobError
from paddlejob.client.job import FirstError, describe
from paddlejob.client.job import Job as ClientJob
from paddlejob.client.logs.model import LogItem, LogQuery, Marker
from paddlejob.client.logs.training_metrics import Metrics, Point
from paddlejob.kube.errors import KubeError
from paddlejob.sdk import documents, snapshot
from paddlejob.sdk.background import BACKGROUND
from paddlejob.sdk.errors import JobError, JobFailed
from paddlejob.sdk.places import LAPTOP, open_jobs

if TYPE_CHECKING:
    from paddlejob.client.explain import Explanation
    from paddlejob.progress import Progress

LOOK_SECONDS = 2.0
"""How long showing a job may take; then it is shown as it last was."""

_Jobs = list["Job"]
_Points = list[Point]


class Line(str):
    """A line of a log, with the rank that wrote it."""

    __slots__ = ("attempt", "rank", "time")

    rank: str
    """Such as worker-0; empty for a remark between the lines, such as that the job was restarted."""
    attempt: int
    time: datetime | None

    def __new__(cls, text: str, rank: str = "", attempt: int = 0, time: datetime | None = None) -> Self:
        """Return a line that is equal to its text."""
        line = super().__new__(cls, text)
        line.rank, line.attempt, line.time = rank, attempt, time
        return line


class Job:
    """One job. Made by `train`, `Job.get`, `Job.list` and `Job.from_yaml`, not by calling it.

    Methods block until they are done, and Ctrl-C ends them; the job itself goes on. They may be called
    anywhere, also where an event loop runs, as in a notebook. All raise JobError.
    """

    def __init__(self, job: ClientJob, where: str) -> None:
        self._job = job
        self._metrics = Metrics()
        self.where = where
        """laptop, cluster, or the name of a kubeconfig context."""

    @classmethod
    def get(cls, name: str, *, where: str = LAPTOP, namespace: str | None = None) -> Job:
        """Return the job of this name, or the newest for `@latest`. Raises JobNotFoundError."""
        return cls(BACKGROUND.call(open_jobs(where, namespace).get, name), where)

    @classmethod
    def list(cls, *, where: str = LAPTOP, namespace: str | None = None, selector: str = "") -> _Jobs:
        """Return all jobs of a place; `selector` chooses by labels on a cluster."""
        found = BACKGROUND.call(open_jobs(where, namespace).list, selector=selector)
        return [cls(each, where) for each in found]

    @classmethod
    def from_yaml(cls, path: str | Path, *, where: str = LAPTOP, namespace: str | None = None) -> Job:
        """Submit the job in a file, as `kubectl create -f` does.

        ConfigMaps and Secrets in the same file are created with the job, and deleted with it.
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
        """The name of the job, on a laptop that of its run."""
        return self._job.name

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return self._job.namespace

    def status(self) -> PaddleJobStatus:
        """Return how the job is: `phase`, `reason`, `message` and the rest of its status."""
        return BACKGROUND.call(self._job.refresh).status

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job has completed, at most so many seconds, and return it.

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
        # That the job has failed is worth more than why.
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
        """Yield the lines of all ranks, or of one: 0, "ps-1", or a role such as "ps".

        With `follow` this begins before the first pod exists, crosses restarts, and ends with the job.
        `tail` is for each rank.
        """
        query = LogQuery(rank=str(rank), follow=follow, tail=tail, since_seconds=since_seconds)
        for item in BACKGROUND.iterate(lambda: self._job.logs(query)):
            yield from _lines(item)

    def progress(self) -> Progress | None:
        """Return how far the first worker is: `epoch`, `step`, `loss`, `fraction`. None if it is silent."""
        self._keep(BACKGROUND.call(snapshot.metrics_of, self._job))
        return self._metrics.progress or snapshot.reported(self.status())

    def history(self) -> _Points:
        """Return the steps and losses that the first worker reported, as rows for a DataFrame."""
        self._keep(BACKGROUND.call(snapshot.metrics_of, self._job))
        return [*self._metrics.points]

    def explain(self) -> Explanation:
        """Return why the job does not run or why it failed, and what to do; `print` shows it."""
        return BACKGROUND.call(self._job.explain)

    def stack(self, rank: str = "all") -> str:
        """Return where the processes of all ranks, or of some, are, for a job that has the recorder."""
        from paddlejob.client.streams.stacks import in_words  # noqa: PLC0415

        return in_words(BACKGROUND.call(lambda: self._job.stacks(rank)))

    def scale(self, workers: int) -> str:
        """Set the number of workers; returns what happens now, as do the following."""
        if type(workers) is not int:
            raise JobError(f"scale({workers!r}): give a whole number of workers")
        return BACKGROUND.call(self._job.scale, workers)

    def suspend(self) -> str:
        """Stop the pods until `resume`."""
        return BACKGROUND.call(self._job.suspend)

    def resume(self) -> str:
        """Start the pods of a suspended job again."""
        return BACKGROUND.call(self._job.resume)

    def stop(self) -> str:
        """Stop the pods and keep what is known of the job."""
        return BACKGROUND.call(self._job.stop)

    def retry(self) -> Job:
        """Submit a finished job again, as a new one, which is returned."""
        return Job(BACKGROUND.call(self._job.retry), self.where)

    def delete(self, *, force: bool = False) -> str:
        """Delete the job with its pods, logs and files; on a laptop a live run only with `force`."""
        return BACKGROUND.call(lambda: self._delete(force=force))

    async def _delete(self, *, force: bool) -> str:
        from paddlejob.client.local_runs import LocalJob  # noqa: PLC0415

        if isinstance(self._job, LocalJob) and await self._job.is_at_work():
            if not force:
                raise JobError(
                    f"{self.name} is running; wait for its end, or stop it with delete(force=True)"
                )
            with contextlib.suppress(ClientError):
                # Raised when it is just about to end.
                await self._job.stop()
            async for _ in self._job.watch():
                pass
        return await self._job.delete()

    def to_yaml(self) -> str:
        """Return the job, with the files it ships, as `kubectl create -f` and `paddlejob run` take it."""
        return documents.dump(BACKGROUND.call(self._job.manifests))

    def watch(self, *, interval_seconds: float = 1.0) -> None:
        """Show the job until it has ended: in place in a notebook, as a line for each change elsewhere.

        Ctrl-C ends the showing, and the job goes on.
        """
        from paddlejob.sdk import display  # noqa: PLC0415

        metrics = self._metrics = Metrics()
        with display.opened() as show:
            for each in BACKGROUND.iterate(
                lambda: snapshot.moments(self._job, self.where, metrics, interval_seconds)
            ):
                show(each)

    def __repr__(self) -> str:
        return str(self._look(with_metrics=False))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: FBT001 - called by IPython
        del cycle
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        from paddlejob.sdk.html import render  # noqa: PLC0415

        return render(self._look(with_metrics=True))

    def _look(self, *, with_metrics: bool) -> snapshot.JobSnapshot:
        """Return the job as it is now, or when that takes too long or is not possible, as it was."""

        async def looked() -> snapshot.JobSnapshot:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    if with_metrics:
                        with contextlib.suppress(ClientError, KubeError):
                            self._keep(await snapshot.metrics_of(self._job))
                    return await snapshot.take(self._job, self.where, self._metrics)
            trouble = f"no answer within {LOOK_SECONDS:g}s"
            return snapshot.last(self._job, self.where, self._metrics, trouble=trouble)

        return BACKGROUND.call(looked)

    def _keep(self, metrics: Metrics) -> None:
        # The log goes with its pod; what was read of it before is still true.
        if metrics.last_line or not self._metrics.last_line:
            self._metrics = metrics


def _lines(item: LogItem) -> Iterator[Line]:
    if isinstance(item, Marker) and not item.is_part_of_log:
        return
    for line in item.lines():
        yield Line(line.text, line.rank, line.attempt, line.time)
