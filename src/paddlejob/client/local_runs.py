"""Runs on this machine, as jobs: what `paddlejob run` keeps in its directory, and the runner that is at work.

A job's name is that of its run, such as mnist-x7k2p.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import yaml

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, View
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus, Phase, Role, RoleStatus
from paddlejob.client import manifest as manifests
from paddlejob.client import ranks
from paddlejob.client.background_run import start_run
from paddlejob.client.errors import ClientError, NoSuchJobError, UnsupportedError
from paddlejob.client.job import FirstError, Job, JobEvent, Jobs, Listing, Look
from paddlejob.client.logs.first_error import from_traceback, silent
from paddlejob.client.logs.model import ALL_LOGS, LogBlock, LogItem, LogQuery
from paddlejob.core.pod_set import Replica, pod_name, training_container_name
from paddlejob.local.control import Command, send
from paddlejob.local.errors import InputError
from paddlejob.local.input import documents
from paddlejob.local.store import files, outcome, reports, run_directory
from paddlejob.local.store.history import History
from paddlejob.local.store.logs import Follower, LogLines, chosen_pods, speaker
from paddlejob.local.store.run_directory import RunDirectory, RunRecord

if TYPE_CHECKING:
    from paddlejob.client.explain import Explanation
    from paddlejob.client.streams.execution import ContainerCommand
    from paddlejob.client.streams.port_forward import Forwarder
    from paddlejob.client.streams.stacks import ProcessStack
    from paddlejob.history.record import Record, Summary

LOOK_SECONDS = 0.2
_UNFINISHED = {
    "Lost": "its runner was killed",
    "Interrupted": "it was interrupted",
    "Stopped": "it was stopped",
}
"""Runs that ended without a verdict of the job."""
_LAST_LINES = 5000
_PROGRESS_BYTES = 4096
"""How much of a log's end is looked at for progress, each time it grows."""


class LocalRuns(Jobs):
    """All runs of this user, or those in another directory."""

    def __init__(self, runs: Path, *, python: str = "") -> None:
        self.runs = runs
        self.python = python
        """The interpreter of the containers, by default that of the shell."""
        self._beside: tuple[JsonObject, ...] = ()

    @classmethod
    def open(cls, runs: Path | None = None, *, python: str = "") -> LocalRuns:
        """Return the runs in a directory, by default where `paddlejob run` keeps them."""
        return cls(runs or run_directory.state_directory(os.environ), python=python)

    async def start(self, text: str) -> LocalJob:
        """Start the job in a YAML text in the background."""
        return LocalJob(self, await asyncio.to_thread(start_run, self.runs, text, python=self.python))

    async def close(self) -> None:
        """Nothing is open."""

    async def get(self, name: str) -> LocalJob:
        """Return the run of exactly this name, the only one of this job, or the newest for `@latest`."""
        if not name:
            raise ClientError("'' is not the name of a run")
        try:
            return LocalJob(self, run_directory.choose(self.runs, name, live=False))
        except InputError as error:
            raise NoSuchJobError(str(error)) from error

    async def list(self, *, selector: str = "", all_namespaces: bool = False) -> list[Job]:
        """Return all runs, newest first; they have neither labels nor namespaces."""
        if selector or all_namespaces:
            raise UnsupportedError("local runs have no labels or namespaces to select by")
        return [LocalJob(self, run) for run in run_directory.all_runs(self.runs) if run.read_record()]

    async def submit(
        self, manifest: JsonObject, *, owned: Sequence[JsonObject] = (), dry_run: bool = False
    ) -> LocalJob:
        """Start a run in the background; it goes on when this process ends."""
        manifests.check(manifest)
        if dry_run:
            raise UnsupportedError("a local run has no server to try it on; a client dry run checks the same")
        return await self.start(yaml.safe_dump_all((*self._beside, *owned, manifest), sort_keys=False))

    async def submit_beside(
        self, manifests: Sequence[JsonObject], *, dry_run: bool = False
    ) -> tuple[str, ...]:
        """Keep the objects for the jobs that are submitted next."""
        del dry_run
        self._beside = tuple(manifests)
        return ()

    async def watch(self, *, selector: str = "", all_namespaces: bool = False) -> AsyncGenerator[Job, None]:
        """Yield every run now, and each again whenever it changes."""
        seen: dict[str, PaddleJob] = {}
        while True:
            for job in await self.list(selector=selector, all_namespaces=all_namespaces):
                if seen.get(job.name) != job.state:
                    seen[job.name] = job.state
                    yield job
            await asyncio.sleep(LOOK_SECONDS)

    async def listings(self, *, all_namespaces: bool = False) -> AsyncGenerator[Listing, None]:
        """Yield all runs now and after each change, with their progress."""
        del all_namespaces
        known: dict[str, tuple[_Glance, LocalJob]] = {}
        is_first = True
        while True:
            before, known = known, await asyncio.to_thread(self._glance, known)
            if is_first or known != before:
                is_first = False
                yield Listing(tuple(job for _, job in known.values()))
            await asyncio.sleep(LOOK_SECONDS)

    def _glance(self, known: dict[str, tuple[_Glance, LocalJob]]) -> dict[str, tuple[_Glance, LocalJob]]:
        """Return the runs by name; one of which nothing was written since is left as it was."""
        found: dict[str, tuple[_Glance, LocalJob]] = {}
        for run in run_directory.all_runs(self.runs):
            before, glance = known.get(run.name), _glance_at(run)
            if before is not None and before[0] == glance:
                found[run.name] = before
            elif run.read_record() is not None:
                job = LocalJob(self, run)
                job.see(_with_progress(run, job.state))
                found[run.name] = (glance, job)
        return found

    async def history(self, *, name: str = "", all_namespaces: bool = False) -> tuple[Summary, ...]:
        """Return the finished runs, all of them or those of one job."""
        from paddlejob.client.records import local_summary  # noqa: PLC0415

        runs = (run for run in run_directory.all_runs(self.runs) if run.read_record())
        jobs = [LocalJob(self, run) for run in runs if name in ("", run.name, run.job_name)]
        if all_namespaces:
            raise UnsupportedError("local runs have no namespaces")
        found = (local_summary(job.run, job.state) for job in jobs)
        return tuple(each for each in found if each.is_final)

    async def record(self, name: str) -> Record:
        """Return what the directory of a run tells."""
        from paddlejob.client.records import local_record  # noqa: PLC0415

        try:
            job = LocalJob(self, run_directory.find(self.runs, name))
        except InputError as error:
            raise NoSuchJobError(str(error)) from error
        return local_record(job.run, job.state, await job.pods(), await job.events())


class LocalJob(Job):
    """A run."""

    def __init__(self, runs: LocalRuns, run: RunDirectory) -> None:
        self._runs = runs
        self.run = run
        record = _record(run)
        super().__init__(run.name, record.job.metadata.namespace, _body(run, record))

    async def refresh(self) -> PaddleJob:
        """Read the run's record again."""
        self.body = _body(self.run, _record(self.run))
        return self.state

    async def watch(self) -> AsyncGenerator[PaddleJob, None]:
        """Yield the state now and after each change, until the run is over."""
        seen: PaddleJob | None = None
        while True:
            state = await self.refresh()
            if state != seen:
                seen = state
                yield state
            if not self.run.is_alive:
                if await self.refresh() != seen:
                    yield self.state
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def looks(self) -> AsyncGenerator[Look, None]:
        """Yield the run with its pods and its progress now and after each change, until it is over."""
        last: Look | None = None
        while True:
            is_alive = self.run.is_alive
            state = _with_progress(self.run, await self.refresh())
            look = Look(state, await self.pods())
            if look != last:
                last = look
                self.see(state)
                yield look
            if not is_alive:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _has_pods(self) -> bool:
        record = _record(self.run)
        return self.run.is_alive and any(pod.metadata.name not in record.gone for pod in record.pods)

    async def pods(self) -> list[Pod]:
        """Return the pods as they are, or as they were last, without those that were scaled away."""
        record = _record(self.run)
        is_alive = self.run.is_alive
        present = {pod.metadata.name for pod in record.pods if is_alive} - {*record.gone}
        shown = {*ranks.wanted(record.job), *present}
        found = (pod for pod in record.pods if pod.metadata.name in shown)
        return ranks.in_order(record.job, found if is_alive else map(_ended, found))

    async def events(self) -> list[JobEvent]:
        """Return the events of the run."""
        try:
            lines = (self.run.path / "events.jsonl").read_bytes().splitlines()
        except OSError:
            return []
        found = [msgspec.json.decode(line, type=_Event, strict=False) for line in lines]
        about = f"{names.KIND}/{self.run.job_name}"
        return [JobEvent(each.type, each.reason, each.message, about, each.time) for each in found]

    async def logs(self, query: LogQuery = ALL_LOGS) -> AsyncGenerator[LogItem, None]:
        """Yield what was written in order of time, and with `follow` what comes."""
        record = _record(self.run)
        ranks.check(record.job, query.rank)
        attempt = max(0, record.job.status.attempt - query.previous)
        begin = datetime.now(UTC).timestamp() - query.since_seconds if query.since_seconds else 0.0
        present = sorted(each.name for each in (self.run.path / "logs").iterdir())
        pods = chosen_pods(record.job.name, query.rank, present)
        history = History(self.run, pods, tail=query.tail, previous=query.previous)
        for piece in history.read():
            if piece.time >= begin and self._is_wanted(piece.lines, query):
                yield self._block(piece.lines, piece.time, attempt)
        if query.previous:
            return
        follower = Follower(self.run, history.ends)
        try:
            while query.follow and self.run.is_alive:
                for lines in follower.poll():
                    if self._is_wanted(lines, query):
                        yield self._block(lines, datetime.now(UTC).timestamp(), attempt)
                await asyncio.sleep(LOOK_SECONDS)
            for lines in follower.rest():
                if self._is_wanted(lines, query):
                    yield self._block(lines, datetime.now(UTC).timestamp(), attempt)
        finally:
            follower.close()

    def _is_wanted(self, lines: LogLines, query: LogQuery) -> bool:
        job = self.run.job_name
        if not chosen_pods(job, query.rank, (lines.pod,)):
            return False
        return query.all_containers or lines.container == (query.container or self._training(lines.pod))

    def _training(self, pod: str) -> str:
        # Not from the record, which tells of a pod a moment after its first lines.
        role = ranks.rank_of(self.run.job_name, pod).rpartition("-")[0]
        specs = (spec for name, spec in self.state.spec.roles() if name == role)
        return next(map(training_container_name, specs), "")

    def _block(self, lines: LogLines, time: float, attempt: int) -> LogBlock:
        stamp = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
        is_training = lines.container == self._training(lines.pod)
        rank = speaker(self.run.job_name, lines, is_training=is_training)
        return LogBlock(rank, attempt, stamp + lines.text[:-1].replace(b"\n", b"\n" + stamp) + b"\n")

    async def first_error(self) -> FirstError | None:
        """Return the first failure, with the end of that rank's log."""
        failure = (await self.refresh()).status.last_failure
        if failure is None:
            return None
        rank = ranks.rank_of(self.run.job_name, failure.pod)
        found = [line.text async for line in self.lines(LogQuery(rank=rank, tail=_LAST_LINES))]
        lines, note = tuple(from_traceback(found)), "" if found else silent(rank)
        return FirstError(rank, failure.message, failure.exit_code, failure.attempt, lines, note)

    async def explain(self) -> Explanation:
        """Explain the run from its record and its log; on this machine nothing else can hold it up."""
        from paddlejob.client.explain import explain  # noqa: PLC0415
        from paddlejob.client.explain.evidence import Evidence  # noqa: PLC0415

        error, state = await self.first_error(), await self.refresh()
        log, note = (error.lines, error.note) if error else ((), "")
        pods, now = tuple(await self.pods()), datetime.now(UTC)
        known = Evidence(job=state, now=now, pods=pods, log=log, log_note=note, run=self.name)
        return msgspec.structs.replace(explain(known), name=self.name)

    async def manifests(self) -> list[JsonObject]:
        """Return the objects of the file that was run."""
        return list(documents.load((self.run.path / "job.yaml").read_text(), "the run's file"))

    async def environment(self, rank: str = "0") -> Mapping[str, str]:
        """Return what the rank's training container was started with."""
        record = _record(self.run)
        pod = ranks.select_one(record.job, await self.pods(), rank).metadata.name
        try:
            lines = self.run.env(pod).read_text().splitlines()
        except OSError:
            raise ClientError(f"{pod} has no environment yet: it has not started") from None
        return dict(line.partition("=")[::2] for line in lines)

    async def execute(self, command: ContainerCommand, *, rank: str = "0", container: str = "") -> int:
        """Refuse: there is no container to enter."""
        del command, rank, container
        raise UnsupportedError(
            "the pods of a local run are processes of this machine, and no command can be run inside them"
        )

    async def stacks(self, rank: str = "all") -> list[ProcessStack]:
        """Ask the processes of the run."""
        from paddlejob.client.streams import stacks  # noqa: PLC0415

        return await stacks.of_run(self, rank)

    async def copy_from(self, rank: str, source: str, target: Path, *, container: str = "") -> Path:
        """Copy what a pod wrote out of the run's directory."""
        del container
        pod = ranks.select_one(_record(self.run).job, await self.pods(), rank).metadata.name
        try:
            found = files.locate(self.run, pod, source)
            return await asyncio.to_thread(files.copy, found, target)
        except InputError as error:
            raise ClientError(str(error)) from error

    async def copy_to(self, rank: str, source: Path, target: str, *, container: str = "") -> str:
        """Refuse: the files of a live container are its own."""
        del rank, source, target, container
        raise UnsupportedError("nothing can be copied into a local run; mount a volume with the files")

    async def forwarder(self, rank: str, on_error: Callable[[str], None]) -> Forwarder:
        """Refuse: there is nothing to forward."""
        del rank, on_error
        raise UnsupportedError("the pods of a local run listen on this machine already; connect to them")

    async def scale(self, workers: int) -> str:
        """Set the number of workers of a live run."""
        return await self._send(Command("scale", workers))

    async def suspend(self) -> str:
        """Stop the pods of a live run until `resume`."""
        return await self._send(Command("suspend"))

    async def resume(self) -> str:
        """Start the pods of a suspended run again."""
        return await self._send(Command("resume"))

    async def stop(self) -> str:
        """End a live run; its logs and files stay."""
        return await self._send(Command("stop"))

    async def delete(self) -> str:
        """Remove the logs, status and files of a run that is over."""
        if await self.is_at_work():
            raise ClientError(f"{self.name} is running; stop it first")
        self.run.remove()
        return "deleted"

    async def retry(self) -> LocalJob:
        """Run the same file again, as a new run."""
        if await self.is_at_work():
            raise ClientError(f"{self.name} is running; only a finished run can be retried")
        return await self._runs.start((self.run.path / "job.yaml").read_text())

    async def is_at_work(self) -> bool:
        """Return whether the run is live; wait for a runner that only cleans up after a job that ended."""
        while self.run.is_alive:
            if not (await self.refresh()).status.phase.is_terminal:
                return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    async def _send(self, command: Command) -> str:
        try:
            return await asyncio.to_thread(send, self.run, command)
        except InputError as error:
            raise ClientError(str(error)) from error


class _Event(View, frozen=True):
    type: str = ""
    reason: str = ""
    message: str = ""
    time: datetime | None = None


class _Glance(NamedTuple):
    """What changes whenever a run does."""

    recorded: int
    is_alive: bool
    written: tuple[int, ...]
    """Sizes of what tells the progress of worker 0."""


def _glance_at(run: RunDirectory) -> _Glance:
    pod = pod_name(run.job_name, Replica(Role.WORKER, 0))
    sizes = (_stat(path)[1] for path in (run.progress(pod), *(run.path / "logs" / pod).glob("*.log")))
    return _Glance(_stat(run.path / "status.json")[0], run.is_alive, tuple(sizes))


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _with_progress(run: RunDirectory, state: PaddleJob) -> PaddleJob:
    """Return the state with what worker 0 last printed, or else reported, about its progress."""
    from paddlejob.operator.progress import progress_of  # noqa: PLC0415 - not needed for most verbs

    if state.spec.worker is None:
        return state
    tracker = outcome.tracked(run, state, _PROGRESS_BYTES)
    reported = reports.newest(run.progress(pod_name(run.job_name, Replica(Role.WORKER, 0))))
    if tracker.progress is None and reported is not None:
        tracker.add(reported, 0.0)
    status = msgspec.structs.replace(state.status, progress=progress_of(tracker, 0.0))
    return msgspec.structs.replace(state, status=status)


def _record(run: RunDirectory) -> RunRecord:
    record = run.read_record()
    if record is None:
        raise NoSuchJobError(f"run {run.name} was removed, or has not started yet")
    return record


def _body(run: RunDirectory, record: RunRecord) -> JsonObject:
    if not record.result and not run.is_alive:
        # The runner may have written its last record between the two looks.
        record = run.read_record() or record
    status = record.job.status
    reason = record.result or "Lost"
    if reason in _UNFINISHED and not run.is_alive:
        status = _without_verdict(status, reason, datetime.fromtimestamp(run.recorded, UTC))
    job = msgspec.structs.replace(record.job, status=status)
    body: JsonObject = msgspec.to_builtins(job)
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, **body}


def _ended(pod: Pod) -> Pod:
    """Return a pod of a run that is over, which waits for nothing any more."""
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=None)
    )


def _without_verdict(status: PaddleJobStatus, reason: str, ended: datetime) -> PaddleJobStatus:
    """Return how a job stands whose runner ended before the job did: nothing of it runs."""
    verdict = {"Running": "False", "Failed": "True"}
    conditions = [
        msgspec.structs.replace(each, status=verdict[each.type], reason=reason, last_transition_time=ended)
        if each.type in verdict
        else each
        for each in status.conditions
    ]
    roles = {
        role: RoleStatus(ready=f"0/{before.ready.rpartition('/')[2]}")
        for role in Role
        if (before := getattr(status, role))
    }
    return msgspec.structs.replace(
        status,
        phase=Phase.FAILED,
        reason=reason,
        message=_UNFINISHED[reason],
        completion_time=ended,
        conditions=conditions,
        **roles,
    )
