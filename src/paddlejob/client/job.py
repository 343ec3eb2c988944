"""The interface to jobs on a cluster (`cluster.py`) and on this machine (`local_runs.py`).

    async with Cluster.open(namespace="team-a") as jobs:       # or: LocalRuns.open()
        job = await jobs.submit(manifest)
        async for line in job.lines(LogQuery(follow=True)):
            print(line.rank, line.text)
        state = await job.wait(timeout_seconds=3600)

Every method raises ClientError, or KubeError if the cluster is the cause; `errors.sentence` returns both as a
sentence. A method that one of the two does not support raises UnsupportedError.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.client.errors import (
    ClientError,
    GoalMissedError,
    NoSuchJobError,
    UnsupportedError,
    WaitTimeoutError,
)
from paddlejob.client.logs.model import ALL_LOGS, LogItem, LogLine, LogQuery
from paddlejob.kube.errors import ForbiddenError

if TYPE_CHECKING:
    from pathlib import Path

    from paddlejob.client.explain import Explanation
    from paddlejob.client.streams.execution import ContainerCommand
    from paddlejob.client.streams.port_forward import Forwarder
    from paddlejob.client.streams.processes import RankProcess
    from paddlejob.client.streams.stacks import ProcessStack
    from paddlejob.history.record import Record, Summary


ENDED = "ended"
DELETED = "deleted"
_GOAL_PHASES = {str(phase).lower(): phase for phase in Phase if phase}
LATEST = "@latest"
"""The name that stands for the newest job."""
LOOK_SECONDS = 1.0
CHANGES = frozenset({"delete", "resume", "retry", "scale", "stop", "submit", "suspend"})
"""The changes that `Jobs.rights` reports."""
UNFINISHED = {
    "Stopped": "it was stopped",
    "Interrupted": "it was interrupted",
    "Lost": "its runner was killed",
}
"""Phases of a run on this machine that ended before its job did, with their messages.

In the status such a run is Failed, with the phase as its reason: the API has no other phase for it.
"""
PHASES = (*(str(phase) for phase in Phase if phase), *UNFINISHED)
"""All values of `Job.phase`."""


class JobEvent(msgspec.Struct, frozen=True):
    """An event of a job or of one of its pods."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str
    object: str = ""
    """Such as PaddleJob/demo or Pod/demo-worker-0."""
    time: datetime | None = None
    count: int = 1


class Usage(NamedTuple):
    """Resource usage of a pod, in quantities of Kubernetes."""

    cpu: str
    memory: str


class Listing(NamedTuple):
    """All jobs at one moment. A job that has not changed since the last listing is the same object."""

    jobs: Sequence[Job]
    trouble: str = ""
    """The problem with the connection; empty if there is none."""


class JobWithPods(NamedTuple):
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
    """The last traceback and the lines after it, or the last lines if there is no traceback."""
    note: str = ""
    """The source of the lines if it is not the log of the pod, or why there are none."""


class Job(abc.ABC):
    """One job. `state` is the state at the last `refresh`."""

    def __init__(self, name: str, namespace: str, body: JsonObject) -> None:
        self.name = name
        self.namespace = namespace
        self.body = body

    @property
    def body(self) -> JsonObject:
        """The whole stored object."""
        return self._body

    @body.setter
    def body(self, body: JsonObject) -> None:
        self._body = body
        self._state: PaddleJob | None = None

    def see(self, state: PaddleJob) -> None:
        """Set a state that is newer than `body`."""
        self._state = state

    @property
    def state(self) -> PaddleJob:
        """Spec and status with types."""
        if self._state is None:
            self._state = job_of(self._body)
        return self._state

    @property
    def phase(self) -> str:
        """The phase, or Stopped, Interrupted or Lost for a run on this machine that ended before its job."""
        return phase_of(self.state)

    @property
    def result(self) -> str:
        """The reason of the phase; for a run on this machine its result."""
        return self.state.status.reason

    @property
    def printed(self) -> JsonObject:
        """The object that `-o json` prints; for a run on this machine it has the name of the run."""
        return self._body

    @property
    def restarts(self) -> int:
        """How often the job was restarted; on this machine with the restarts of containers."""
        return self.state.status.restarts

    @property
    def kind_and_name(self) -> str:
        """The name as `kubectl -o name` prints it."""
        return f"paddlejob.batch.paddlepaddle.org/{self.name}"

    @abc.abstractmethod
    async def refresh(self) -> PaddleJob:
        """Read the job again and return `state`. Raises NoSuchJobError if it was deleted."""

    @abc.abstractmethod
    def watch(self) -> AsyncGenerator[PaddleJob, None]:
        """Yield the state, now and after each change, until the job is deleted or its run has ended."""

    @abc.abstractmethod
    def watch_with_pods(self) -> AsyncGenerator[JobWithPods, None]:
        """Yield the job and its pods, now and after each change, until it is deleted or its run has ended."""

    async def wait(
        self,
        goal: str = ENDED,
        *,
        timeout_seconds: float | None = None,
        on_note: Callable[[str], None] = lambda _: None,
    ) -> PaddleJob:
        """Wait until the job has ended, or for another goal (see `parse_goal`), and return its state.

        `on_note` receives the reason if the wait continues after the status has reached the goal.
        Raises WaitTimeoutError, and GoalMissedError if the job ends without reaching the goal.
        """
        reached = parse_goal(goal)
        state = self.state
        try:
            async with asyncio.timeout(timeout_seconds), contextlib.aclosing(self.watch()) as states:
                async for state in states:
                    if reached(state):
                        await self._settle(on_note)
                        return state
                    if state.status.phase.is_terminal and goal != DELETED:
                        raise GoalMissedError(f"{self.name} is {describe(state)}, and will not be {goal}")
        except TimeoutError:
            missed = "has not ended" if goal == ENDED else f"is not {goal}"
            reason = "its pods are terminating" if reached(state) else f"it is {describe(state)}"
            raise WaitTimeoutError(f"{self.name} {missed} after {timeout_seconds:g}s: {reason}") from None
        if goal == DELETED:
            return state
        raise GoalMissedError(
            f"{self.name} was deleted before it {'ended' if goal == ENDED else f'was {goal}'}"
        )

    async def _settle(self, on_note: Callable[[str], None]) -> None:
        """Wait until the pods of a suspended job are deleted.

        The goal is already reached, so a deleted job or a missing permission to list pods ends the wait.
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
        """Return the pods: servers first, each role in order of rank."""

    async def usage(self) -> Mapping[str, Usage]:
        """Return the measured CPU and memory of the pods, by name. Raises KubeError."""
        raise UnsupportedError("the pods of a local run are not measured")

    @abc.abstractmethod
    async def events(self) -> list[JobEvent]:
        """Return the events of the job and its pods, oldest first."""

    @abc.abstractmethod
    def logs(self, query: LogQuery = ALL_LOGS) -> AsyncGenerator[LogItem, None]:
        """Yield the logs of all or some ranks: blocks of lines, and markers between them."""

    async def lines(self, query: LogQuery = ALL_LOGS) -> AsyncGenerator[LogLine, None]:
        """Yield the logs line by line; a marker is a line without a rank."""
        async with contextlib.aclosing(self.logs(query)) as items:
            async for item in items:
                for line in item.lines():
                    yield line

    @abc.abstractmethod
    async def first_error(self) -> FirstError | None:
        """Return the first failure of the last failed attempt; None if there is none."""

    @abc.abstractmethod
    async def explain(self) -> Explanation:
        """Return the reason why the job does not run or failed, with advice."""

    @abc.abstractmethod
    async def manifests(self) -> list[JsonObject]:
        """Return manifests for `kubectl create`: the job, and the objects that it owns."""

    @abc.abstractmethod
    async def environment(self, rank: str = "0") -> Mapping[str, str]:
        """Return the environment of a rank: of a process, or of a training container with one process."""

    async def execute(self, command: ContainerCommand, *, rank: str = "0", container: str = "") -> int:
        """Run a command in a container of a rank, by default the training container; return its exit code."""
        del command, rank, container
        raise UnsupportedError(
            "the pods of a local run are processes of this machine, and no command can be run inside them"
        )

    @abc.abstractmethod
    async def stacks(self, rank: str = "all") -> list[ProcessStack]:
        """Return the call stacks of the processes of all or some ranks, which the recorder writes."""

    @abc.abstractmethod
    async def processes(self, rank: str = "all") -> list[RankProcess]:
        """Return the processes that Paddle's launcher started in the pods of all or some ranks.

        At most 64 pods are read. On a cluster they must run; a pod that cannot be read has `trouble`.
        """

    @abc.abstractmethod
    async def copy_from(self, rank: str, source: str, target: Path, *, container: str = "") -> Path:
        """Copy a file or directory out of a rank to a path or into a directory; return its new path."""

    async def copy_to(self, rank: str, source: Path, target: str, *, container: str = "") -> str:
        """Copy a file or directory into a rank; return its new path."""
        del rank, source, target, container
        raise UnsupportedError("nothing can be copied into a local run; mount a volume with the files")

    async def forwarder(self, rank: str, on_error: Callable[[str], None]) -> Forwarder:
        """Return a forwarder of ports of this machine to a rank."""
        del rank, on_error
        raise UnsupportedError("the pods of a local run listen on this machine already; connect to them")

    @abc.abstractmethod
    async def scale(self, workers: int) -> str:
        """Set the number of workers. Return a sentence about the effect, as the next methods do."""

    @abc.abstractmethod
    async def suspend(self) -> str:
        """Stop the pods until `resume`."""

    @abc.abstractmethod
    async def resume(self) -> str:
        """Start the pods of a suspended job again."""

    @abc.abstractmethod
    async def stop(self) -> str:
        """Stop the pods and keep the job."""

    @abc.abstractmethod
    async def delete(self) -> str:
        """Delete the job and everything that belongs to it."""

    async def is_at_work(self) -> bool:
        """Return whether the job must be stopped before it can be deleted."""
        return False

    def written_file(self) -> str:
        """Return the path of a file, such as a model, that would be deleted with the job."""
        return ""

    @abc.abstractmethod
    async def retry(self) -> Job:
        """Submit a finished job again and return the new job."""


class Jobs(abc.ABC):
    """The jobs of a namespace of a cluster, or the runs on this machine."""

    @property
    @abc.abstractmethod
    def place(self) -> str:
        """The namespace or directory, for messages."""

    @abc.abstractmethod
    async def get(self, name: str) -> Job:
        """Return the job of this name, or the newest job for `@latest`. Raises NoSuchJobError.

        On this machine the name of a job stands for its newest run.
        """

    async def get_live(self, name: str) -> Job:
        """Return the job of this name; on this machine the name of a job stands for its only live run.

        Raises NoSuchJobError, and ClientError if several runs are live. If none is, the newest is returned.
        """
        return await self.get(name)

    async def get_only(self, name: str) -> Job:
        """Return the job of this name. Raises ClientError if it has several runs on this machine."""
        return await self.get(name)

    @abc.abstractmethod
    async def list(self, *, selector: str = "", all_namespaces: bool = False) -> list[Job]:
        """Return the jobs in order of their names."""

    @abc.abstractmethod
    async def submit(
        self, manifest: JsonObject, *, owned: Sequence[JsonObject] = (), dry_run: bool = False
    ) -> Job:
        """Create a job from its manifest; with `dry_run` only check it.

        The ConfigMaps and Secrets in `owned` are created with the job and deleted with it.
        Raises InvalidJobError, and NameTakenError.
        """

    @abc.abstractmethod
    async def submit_beside(
        self, manifests: Sequence[JsonObject], *, dry_run: bool = False
    ) -> tuple[str, ...]:
        """Create the other objects of a job file; return a sentence for each."""

    @abc.abstractmethod
    def watch(self, *, selector: str = "", all_namespaces: bool = False) -> AsyncGenerator[Job, None]:
        """Yield every job now, and each job again after each change. Never ends."""

    @abc.abstractmethod
    def listings(self, *, all_namespaces: bool = False) -> AsyncGenerator[Listing, None]:
        """Yield all jobs now and after each change or deletion. Never ends."""

    async def rights(self, namespace: str) -> frozenset[str]:
        """Return the `CHANGES` that the user may make in a namespace."""
        del namespace
        return CHANGES

    @abc.abstractmethod
    async def history(self, *, name: str = "", all_namespaces: bool = False) -> tuple[Summary, ...]:
        """Return the finished jobs, or those with this name, including deleted ones, newest first."""

    @abc.abstractmethod
    async def record(self, name: str) -> Record:
        """Return the record of the newest job of a name, also if it was deleted. Raises NoSuchJobError.

        The name of a record, `object_key(summary).name`, is accepted too.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Close connections."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def name_without_kind(name: str) -> str:
    """Return the name in `paddlejob/NAME`, which `-o name` prints. Raises ClientError for another kind."""
    kind, slash, rest = name.partition("/")
    if not slash:
        return name
    if kind.lower().partition(".")[0] not in {names.KIND.lower(), names.PLURAL, names.SHORT_NAME}:
        raise ClientError(f"{kind} is not a kind of job; write the name of a PaddleJob")
    return rest


def job_of(body: JsonObject) -> PaddleJob:
    """Return the typed view of a job. If it does not decode, only its name and the error are set."""
    try:
        return msgspec.convert(body, PaddleJob, strict=False)
    except msgspec.ValidationError as error:
        name = msgspec.convert({"metadata": {"name": body["metadata"]["name"]}}, PaddleJob)
        return msgspec.structs.replace(name, undecodable=str(error))


def run_time(state: PaddleJob) -> tuple[int, datetime | None]:
    """Return the seconds that a job ran before its last suspension, and the time of its last start."""
    status = state.status
    if status.active_since or status.active_seconds or status.phase is Phase.SUSPENDED:
        return status.active_seconds, status.active_since
    return 0, status.start_time


def running_seconds(state: PaddleJob, now: datetime) -> float | None:
    """Return how long a job has run, without suspensions; None before its start."""
    before, since = run_time(state)
    if state.status.start_time is None:
        return None
    end = state.status.completion_time or now
    return before + ((end - since).total_seconds() if since else 0.0)


def phase_of(state: PaddleJob) -> str:
    """Return the phase, or the value of `UNFINISHED` for a run on this machine that ended before its job."""
    status = state.status
    if status.phase is Phase.FAILED and status.reason in UNFINISHED:
        return status.reason
    return str(status.phase or Phase.PENDING)


def describe(state: PaddleJob) -> str:
    """Return the phase and its message."""
    phase = phase_of(state)
    return f"{phase}: {state.status.message}" if state.status.message else phase


def parse_goal(goal: str) -> Callable[[PaddleJob], bool]:
    """Return the test for a goal, which is `ended`, `deleted`, a phase, or `condition=TYPE[=STATUS]`.

    Raises ClientError.
    """
    if goal == ENDED:
        return lambda job: job.status.phase.is_terminal
    if goal == DELETED:
        return lambda _: False
    if phase := _GOAL_PHASES.get(goal.lower()):
        return lambda job: job.status.phase is phase
    kind, _, rest = goal.partition("=")
    if kind == "condition" and rest:
        name, _, status = rest.partition("=")
        return lambda job: _holds(job, name.lower(), (status or "true").lower())
    phases = ", ".join(_GOAL_PHASES)
    raise ClientError(
        f"cannot wait for {goal!r}; choose {ENDED}, {DELETED}, condition=TYPE or one of {phases}"
    )


def _holds(job: PaddleJob, name: str, status: str) -> bool:
    conditions = job.status.conditions
    return any(each.type.lower() == name and each.status.lower() == status for each in conditions)
