"""The interface to a job, wherever it runs: on a cluster (`cluster.py`) or on this machine (`local_runs.py`).

    async with Cluster.open(namespace="team-a") as jobs:       # or: LocalRuns.open()
        job = await jobs.submit(manifest)
        async for line in job.lines(LogQuery(follow=True)):
            print(line.rank, line.text)
        state = await job.wait(timeout_seconds=3600)

Every method raises ClientError, or KubeError for what is wrong with the cluster; `errors.sentence` puts both
into words. What one of the two cannot do raises UnsupportedError, which says why.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.client import goals
from paddlejob.client.errors import GoalMissedError, NoSuchJobError, UnsupportedError, WaitTimeoutError
from paddlejob.client.logs.model import ALL_LOGS, LogItem, LogLine, LogQuery
from paddlejob.kube.errors import ForbiddenError

if TYPE_CHECKING:
    from pathlib import Path

    from paddlejob.client.explain import Explanation
    from paddlejob.client.streams.execution import ContainerCommand
    from paddlejob.client.streams.port_forward import Forwarder
    from paddlejob.client.streams.stacks import ProcessStack
    from paddlejob.history.record import Record, Summary

LATEST = "@latest"
"""In place of a name: the newest job."""
LOOK_SECONDS = 1.0
CHANGES = frozenset({"delete", "resume", "retry", "scale", "stop", "submit", "suspend"})
"""What people do with jobs."""


class JobEvent(msgspec.Struct, frozen=True):
    """Something that happened to a job or to one of its pods."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str
    object: str = ""
    """Such as PaddleJob/demo or Pod/demo-worker-0."""
    time: datetime | None = None
    count: int = 1


class Usage(NamedTuple):
    """What a pod uses, as Kubernetes writes quantities."""

    cpu: str
    memory: str


class Listing(NamedTuple):
    """All jobs at one moment; a job that has not changed since the last listing is the same object."""

    jobs: Sequence[Job]
    trouble: str = ""
    """What is wrong with the connection, empty while it is healthy."""


class Look(NamedTuple):
    """A job and its pods at one moment."""

    state: PaddleJob
    pods: list[Pod]
    trouble: str = ""


class FirstError(msgspec.Struct, frozen=True):
    """The first failure of a job, and the last lines of the rank that failed."""

    rank: str
    sentence: str
    exit_code: int = 0
    attempt: int = 0
    lines: tuple[str, ...] = ()
    """From the last traceback on, or the last lines where there is none."""
    note: str = ""
    """The source of the lines, if it is not the log of the pod, or why there are none."""


class Job(abc.ABC):
    """One job; `state` is how it was when it was last looked at."""

    def __init__(self, name: str, namespace: str, body: JsonObject) -> None:
        self.name = name
        self.namespace = namespace
        self.body = body

    @property
    def body(self) -> JsonObject:
        """The whole object as it is stored, with everything that `state` does not show."""
        return self._body

    @body.setter
    def body(self, body: JsonObject) -> None:
        self._body = body
        self._state: PaddleJob | None = None

    def see(self, state: PaddleJob) -> None:
        """Take a newer state than that of `body`."""
        self._state = state

    @property
    def state(self) -> PaddleJob:
        """Spec and status, typed."""
        if self._state is None:
            self._state = job_of(self._body)
        return self._state

    @property
    def kind_and_name(self) -> str:
        """As `kubectl -o name` writes it."""
        return f"paddlejob.batch.paddlepaddle.org/{self.name}"

    @abc.abstractmethod
    async def refresh(self) -> PaddleJob:
        """Look again, and return `state`. Raises NoSuchJobError when the job is gone."""

    @abc.abstractmethod
    def watch(self) -> AsyncGenerator[PaddleJob, None]:
        """Yield the state now and after each change, until the job is deleted or its run is over."""

    @abc.abstractmethod
    def looks(self) -> AsyncGenerator[Look, None]:
        """Yield the job with its pods now and after each change, until it is deleted or its run is over."""

    async def wait(
        self,
        goal: str = goals.ENDED,
        *,
        timeout_seconds: float | None = None,
        on_note: Callable[[str], None] = lambda _: None,
    ) -> PaddleJob:
        """Wait until the job has ended, or for another goal (see `goals.parse`), and return its state.

        `on_note` receives the reason if the wait continues after the status has reached the goal.
        Raises WaitTimeoutError, and GoalMissedError when the job ends in a way that rules the goal out.
        """
        reached = goals.parse(goal)
        state = self.state
        try:
            async with asyncio.timeout(timeout_seconds), contextlib.aclosing(self.watch()) as states:
                async for state in states:
                    if reached(state):
                        await self._settle(on_note)
                        return state
                    if state.status.phase.is_terminal and goal != goals.DELETED:
                        raise GoalMissedError(f"{self.name} is {describe(state)}, and will not be {goal}")
        except TimeoutError:
            missed = "has not ended" if goal == goals.ENDED else f"is not {goal}"
            reason = "its pods are terminating" if reached(state) else f"it is {describe(state)}"
            raise WaitTimeoutError(f"{self.name} {missed} after {timeout_seconds:g}s: {reason}") from None
        if goal == goals.DELETED:
            return state
        raise GoalMissedError(
            f"{self.name} was deleted before it {'ended' if goal == goals.ENDED else f'was {goal}'}"
        )

    async def _settle(self, on_note: Callable[[str], None]) -> None:
        """Wait until the pods of a suspended job are gone.

        The goal is reached already: a deleted job, or pods that the user may not list, end the wait.
        """
        is_noted = False
        with contextlib.suppress(ForbiddenError, NoSuchJobError):
            while self.state.status.phase is Phase.SUSPENDED and await self._has_pods():
                if not is_noted:
                    on_note(f"{self.name} is suspended; waiting for its pods to terminate")
                    is_noted = True
                await asyncio.sleep(LOOK_SECONDS)
                await self.refresh()

    async def _has_pods(self) -> bool:
        return bool(await self.pods())

    @abc.abstractmethod
    async def pods(self) -> list[Pod]:
        """Return the pods, servers first, each role in order of rank."""

    async def usage(self) -> Mapping[str, Usage]:
        """Return the measured CPU and memory of the pods, by name. Raises KubeError."""
        raise UnsupportedError("the pods of a local run are not measured")

    @abc.abstractmethod
    async def events(self) -> list[JobEvent]:
        """Return what happened to the job and its pods, oldest first."""

    @abc.abstractmethod
    def logs(self, query: LogQuery = ALL_LOGS) -> AsyncGenerator[LogItem, None]:
        """Yield the logs of all or some ranks, as blocks of lines and markers between them."""

    async def lines(self, query: LogQuery = ALL_LOGS) -> AsyncGenerator[LogLine, None]:
        """Yield the same line by line; a marker is a line without a rank."""
        async with contextlib.aclosing(self.logs(query)) as items:
            async for item in items:
                for line in item.lines():
                    yield line

    @abc.abstractmethod
    async def first_error(self) -> FirstError | None:
        """Return the first failure of the last failed attempt, None when nothing has failed."""

    @abc.abstractmethod
    async def explain(self) -> Explanation:
        """Return why the job does not run, or why it failed, and what to do."""

    @abc.abstractmethod
    async def manifests(self) -> list[JsonObject]:
        """Return what the job owns, and the job, as `kubectl create` takes them."""

    @abc.abstractmethod
    async def environment(self, rank: str = "0") -> Mapping[str, str]:
        """Return the environment of a rank's training container."""

    @abc.abstractmethod
    async def execute(self, command: ContainerCommand, *, rank: str = "0", container: str = "") -> int:
        """Run a command in a container of a rank, by default the one that trains; return its exit code."""

    @abc.abstractmethod
    async def stacks(self, rank: str = "all") -> list[ProcessStack]:
        """Return where the processes of all ranks, or of some, are; the recorder in them is asked."""

    @abc.abstractmethod
    async def copy_from(self, rank: str, source: str, target: Path, *, container: str = "") -> Path:
        """Copy a file or directory out of a rank to a path, or into a directory; return where it is."""

    @abc.abstractmethod
    async def copy_to(self, rank: str, source: Path, target: str, *, container: str = "") -> str:
        """Copy a file or directory into a rank; return where it is."""

    @abc.abstractmethod
    async def forwarder(self, rank: str, on_error: Callable[[str], None]) -> Forwarder:
        """Return what forwards ports of this machine to a rank."""

    @abc.abstractmethod
    async def scale(self, workers: int) -> str:
        """Set the number of workers; returns a sentence about what happens now, as do the following."""

    @abc.abstractmethod
    async def suspend(self) -> str:
        """Stop the pods until `resume`."""

    @abc.abstractmethod
    async def resume(self) -> str:
        """Start the pods of a suspended job again."""

    @abc.abstractmethod
    async def stop(self) -> str:
        """Stop the pods and keep what is known of the job."""

    @abc.abstractmethod
    async def delete(self) -> str:
        """Delete the job and all that belongs to it."""

    @abc.abstractmethod
    async def retry(self) -> Job:
        """Submit a finished job again, as a new one, which is returned."""


class Jobs(abc.ABC):
    """Where jobs are: a namespace of a cluster, or this machine."""

    @abc.abstractmethod
    async def get(self, name: str) -> Job:
        """Return the job of exactly this name, or the newest for `@latest`. Raises NoSuchJobError."""

    @abc.abstractmethod
    async def list(self, *, selector: str = "", all_namespaces: bool = False) -> list[Job]:
        """Return the jobs in order of their names."""

    @abc.abstractmethod
    async def submit(
        self, manifest: JsonObject, *, owned: Sequence[JsonObject] = (), dry_run: bool = False
    ) -> Job:
        """Create a job from what `kubectl create` takes; with `dry_run` only check that it could be.

        ConfigMaps and Secrets that are `owned` are created with the job and deleted with it.
        Raises InvalidJobError, and NameTakenError.
        """

    @abc.abstractmethod
    async def submit_beside(
        self, manifests: Sequence[JsonObject], *, dry_run: bool = False
    ) -> tuple[str, ...]:
        """Create the objects that stand in a file beside its jobs; return a sentence for each."""

    @abc.abstractmethod
    def watch(self, *, selector: str = "", all_namespaces: bool = False) -> AsyncGenerator[Job, None]:
        """Yield every job now, and each again whenever it changes; never ends by itself."""

    @abc.abstractmethod
    def listings(self, *, all_namespaces: bool = False) -> AsyncGenerator[Listing, None]:
        """Yield all jobs now and after each change, which may be that one is gone; never ends by itself."""

    async def rights(self, namespace: str) -> frozenset[str]:
        """Return which of `CHANGES` the user may make in a namespace."""
        del namespace
        return CHANGES

    @abc.abstractmethod
    async def history(self, *, name: str = "", all_namespaces: bool = False) -> tuple[Summary, ...]:
        """Return the finished jobs, deleted ones too, or those with a name, newest first."""

    @abc.abstractmethod
    async def record(self, name: str) -> Record:
        """Return all that is known of the newest job of a name, also when it is gone. Raises NoSuchJobError.

        `object_key(summary).name` in place of the name means one that is not the newest.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Close connections."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def job_of(body: JsonObject) -> PaddleJob:
    """Return the typed view of a job; of one that does not fit the types, its name and what is wrong."""
    try:
        return msgspec.convert(body, PaddleJob, strict=False)
    except msgspec.ValidationError as error:
        name = msgspec.convert({"metadata": {"name": body["metadata"]["name"]}}, PaddleJob)
        return msgspec.structs.replace(name, undecodable=str(error))


def run_time(state: PaddleJob) -> tuple[int, datetime | None]:
    """Return the seconds that a job ran before its last suspension, and since when it runs again."""
    status = state.status
    if status.active_since or status.active_seconds or status.phase is Phase.SUSPENDED:
        return status.active_seconds, status.active_since
    return 0, status.start_time


def running_seconds(state: PaddleJob, now: datetime) -> float | None:
    """Return how long a job has run, suspensions apart, None before its start."""
    before, since = run_time(state)
    if state.status.start_time is None:
        return None
    end = state.status.completion_time or now
    return before + ((end - since).total_seconds() if since else 0.0)


def describe(state: PaddleJob) -> str:
    """Return the phase and, where there is one, the reason for it in words."""
    phase = str(state.status.phase or Phase.PENDING)
    return f"{phase}: {state.status.message}" if state.status.message else phase
