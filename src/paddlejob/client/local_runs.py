"""Runs on this machine, as jobs: the directories that `paddlejob run` writes, and its live runners.

Such a job has the name of its run, such as mnist-x7k2p.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import yaml

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.client import local_state, ranks
from paddlejob.client import manifest as manifests
from paddlejob.client.background_run import start_run
from paddlejob.client.errors import ClientError, NoSuchJobError, UnsupportedError
from paddlejob.client.job import (
    LATEST,
    UNFINISHED,
    FirstError,
    Job,
    JobEvent,
    Jobs,
    JobWithPods,
    Listing,
    name_without_kind,
)
from paddlejob.client.logs.history import from_traceback, silent
from paddlejob.client.logs.model import ALL_LOGS, LogItem, LogQuery
from paddlejob.client.logs.run_log import run_log
from paddlejob.client.records import local_record, local_summary
from paddlejob.client.streams.processes import RankProcess, run_environment, run_processes
from paddlejob.client.streams.stacks import ProcessStack, run_stacks
from paddlejob.history.record import Record, Summary
from paddlejob.local.control import Command, send
from paddlejob.local.errors import InputError
from paddlejob.local.input import documents
from paddlejob.local.store import outcome, run_directory
from paddlejob.local.store.run_directory import RunDirectory, RunRecord

if TYPE_CHECKING:
    from paddlejob.client.explain import Explanation

LOOK_SECONDS = 0.2
_LAST_LINES = 5000
_NAMED_RUNS = 5


class LocalRuns(Jobs):
    """All runs of this user, or those in another directory."""

    def __init__(self, runs: Path, *, python: str = "") -> None:
        self.runs = runs
        self.python = python
        """The interpreter of the containers. Default: python of the shell."""
        self._beside: tuple[JsonObject, ...] = ()

    @classmethod
    def open(cls, runs: Path | None = None, *, python: str = "") -> LocalRuns:
        """Return the runs in a directory, by default the directory of `paddlejob run`."""
        return cls(runs or run_directory.state_directory(os.environ), python=python)

    async def start(self, text: str) -> LocalJob:
        """Start the job in a YAML text in the background."""
        return LocalJob(self, await asyncio.to_thread(start_run, self.runs, text, python=self.python))

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def place(self) -> str:
        """The directory of the runs."""
        return str(self.runs)

    async def get(self, name: str) -> LocalJob:
        """Return the run of this name, the newest run of a job, or the newest of all for `@latest`."""
        return LocalJob(self, self._find(name)[0])

    async def get_live(self, name: str) -> LocalJob:
        """Return the run of this name, or the only live run of a job, or its newest run if none is live."""
        found = self._find(name)
        live = [run for run in found if run.is_alive]
        if len(live) > 1:
            raise ClientError(
                f"{found[0].job_name} has {len(live)} live runs: {_listed(live)}; give the name of one"
            )
        return LocalJob(self, (live or found)[0])

    async def get_only(self, name: str) -> LocalJob:
        """Return the run of this name, or the only run of a job."""
        found = self._find(name)
        if len(found) > 1:
            raise ClientError(
                f"{found[0].job_name} has {len(found)} runs: {_listed(found)}; give the name of one"
            )
        return LocalJob(self, found[0])

    def _find(self, name: str) -> list[RunDirectory]:
        """Return the run of this name, or all runs of a job, newest first."""
        name = name_without_kind(name)
        if not name:
            raise ClientError("'' is not the name of a run")
        present = run_directory.all_runs(self.runs)
        if not present:
            raise NoSuchJobError(f"there are no runs in {self.runs} yet")
        found = present[:1] if name == LATEST else [each for each in present if each.name == name]
        found = found or [each for each in present if each.job_name == name]
        if not found:
            raise NoSuchJobError(f"there is no run {name}; the newest are {_listed(present)}")
        return found

    async def list(self, *, selector: str = "", all_namespaces: bool = False) -> list[Job]:
        """Return all runs, newest first; they have neither labels nor namespaces."""
        if selector or all_namespaces:
            raise UnsupportedError("local runs have no labels or namespaces to select by")
        return [*self._jobs()]

    def _jobs(self) -> Iterator[LocalJob]:
        for run in run_directory.all_runs(self.runs):
            # A run that is just being created or deleted is left out.
            with contextlib.suppress(NoSuchJobError):
                yield LocalJob(self, run)

    async def submit(
        self, manifest: JsonObject, *, owned: Sequence[JsonObject] = (), dry_run: bool = False
    ) -> LocalJob:
        """Start a run in the background, which outlives this process."""
        manifests.check(manifest)
        if dry_run:
            raise UnsupportedError(
                "a local run has no server for a dry run; a client dry run checks the same"
            )
        return await self.start(yaml.safe_dump_all((*self._beside, *owned, manifest), sort_keys=False))

    async def submit_beside(
        self, manifests: Sequence[JsonObject], *, dry_run: bool = False
    ) -> tuple[str, ...]:
        """Keep the objects for the jobs that are submitted next."""
        del dry_run
        self._beside = tuple(manifests)
        return ()

    async def watch(self, *, selector: str = "", all_namespaces: bool = False) -> AsyncGenerator[Job, None]:
        """Yield every run now, and each run again after each change."""
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
        known: dict[str, _Known] = {}
        is_first = True
        while True:
            before, known = known, await asyncio.to_thread(self._read_changed, known)
            if is_first or known != before:
                is_first = False
                yield Listing(tuple(job for _, job in known.values()))
            await asyncio.sleep(LOOK_SECONDS)

    def _read_changed(self, known: dict[str, _Known]) -> dict[str, _Known]:
        """Return the runs by name, with the same objects for runs that have not changed."""
        found: dict[str, _Known] = {}
        for run in run_directory.all_runs(self.runs):
            before, mark = known.get(run.name), local_state.fingerprint(run)
            if before is not None and before[0] == mark:
                found[run.name] = before
                continue
            with contextlib.suppress(NoSuchJobError):
                found[run.name] = (mark, LocalJob(self, run))
        return found

    async def history(self, *, name: str = "", all_namespaces: bool = False) -> tuple[Summary, ...]:
        """Return all finished runs, or the finished runs of one job."""
        if all_namespaces:
            raise UnsupportedError("local runs have no namespaces")
        jobs = (job for job in self._jobs() if name in ("", job.run.name, job.run.job_name))
        return tuple(local_summary(job.run, job.state) for job in jobs if job.state.status.phase.is_terminal)

    async def record(self, name: str) -> Record:
        """Return the record of a run."""
        job = await self.get(name)
        return local_record(job.run, job.state, await job.pods(), await job.events())


class LocalJob(Job):
    """A run."""

    def __init__(self, runs: LocalRuns, run: RunDirectory) -> None:
        self._runs = runs
        self.run = run
        state, self._result = local_state.read_state(run)
        super().__init__(run.name, state.metadata.namespace, local_state.manifest_of(state))

    async def refresh(self) -> PaddleJob:
        """Read the record and the progress of the run again."""
        state, self._result = local_state.read_state(self.run)
        self.body = local_state.manifest_of(state)
        return self.state

    @property
    def result(self) -> str:
        """The result that worker 0 printed, the reason of a failure, or the progress so far."""
        return self._result

    @property
    def printed(self) -> JsonObject:
        """The object with the name of the run, and the run's job, directory, interpreter and outcome."""
        record = self.run.read_record() or RunRecord(job=self.state)
        run = {
            "job": self.run.job_name,
            "directory": str(self.run.path),
            "python": record.python,
            "outcome": msgspec.to_builtins(record.outcome),
        }
        return {**self.body, "metadata": {**self.body["metadata"], "name": self.name}, "run": run}

    @property
    def restarts(self) -> int:
        """How often the job was restarted, and the most restarted pod by itself."""
        record = self.run.read_record()
        pods = record.pods if record else ()
        by_pod = (sum(each.restart_count for each in pod.status.container_statuses) for pod in pods)
        return self.state.status.restarts + max(by_pod, default=0)

    @property
    def kind_and_name(self) -> str:
        """The name of the run."""
        return self.name

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

    async def watch_with_pods(self) -> AsyncGenerator[JobWithPods, None]:
        """Yield the run with its pods now and after each change, until it is over."""
        last: JobWithPods | None = None
        while True:
            is_alive = self.run.is_alive
            update = JobWithPods(await self.refresh(), await self.pods())
            if update != last:
                last = update
                yield update
            if not is_alive:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _has_pods(self) -> bool:
        record = local_state.read_record(self.run)
        return self.run.is_alive and any(pod.metadata.name not in record.gone for pod in record.pods)

    async def pods(self) -> list[Pod]:
        """Return the pods, also after the end of the run, without those that were scaled away."""
        record = local_state.read_record(self.run)
        is_alive = self.run.is_alive
        present = {pod.metadata.name for pod in record.pods if is_alive} - {*record.gone}
        shown = {*ranks.wanted(record.job), *present}
        found = (pod for pod in record.pods if pod.metadata.name in shown)
        return ranks.in_order(record.job, found if is_alive else map(local_state.without_deletion, found))

    async def events(self) -> list[JobEvent]:
        """Return the events of the run."""
        try:
            lines = (self.run.path / "events.jsonl").read_bytes().splitlines()
        except OSError:
            return []
        found = [msgspec.json.decode(line, type=local_state.RunEvent, strict=False) for line in lines]
        about = f"{names.KIND}/{self.run.job_name}"
        return [JobEvent(each.type, each.reason, each.message, about, each.time) for each in found]

    def logs(self, query: LogQuery = ALL_LOGS) -> AsyncGenerator[LogItem, None]:
        """Yield the output in order of time, and with `follow` new output until the run is over."""
        return run_log(self, query)

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
        """Explain the run from its record and its log."""
        from paddlejob.client.explain import explain  # noqa: PLC0415
        from paddlejob.client.explain.evidence import Evidence  # noqa: PLC0415

        error, state = await self.first_error(), await self.refresh()
        if self.phase in UNFINISHED:
            return self._explain_unfinished()
        log, note = (error.lines, error.note) if error else ((), "")
        pods, now = tuple(await self.pods()), datetime.now(UTC)
        known = Evidence(job=state, now=now, pods=pods, log=log, log_note=note, run=self.name)
        return msgspec.structs.replace(explain(known), name=self.name)

    def _explain_unfinished(self) -> Explanation:
        """Explain a run that ended before its job did, which is not a failure of the job."""
        from paddlejob.client.explain.result import Advice, Explanation, Finding  # noqa: PLC0415

        advice = Advice(f"run it again: paddlejob retry {self.name}{self.run.run_dir_flag}")
        finding = Finding(self.phase, UNFINISHED[self.phase], advice=(advice,))
        return Explanation(self.namespace, self.name, self.phase, (finding,))

    async def manifests(self) -> list[JsonObject]:
        """Return the objects of the file that was run."""
        return list(documents.load((self.run.path / "job.yaml").read_text(), "the run's file"))

    async def environment(self, rank: str = "0") -> Mapping[str, str]:
        """Return the environment of the training container of a rank, or of the process of a rank."""
        pod = await self._select_one(rank, (path.stem for path in (self.run.path / "env").glob("*.env")))
        if (process := ranks.place_of(self.state, rank).process) is not None:
            return await run_environment(self, pod, process)
        try:
            return self.run.read_env(pod)
        except OSError:
            raise ClientError(f"{pod} has no environment: it has not started") from None

    async def _select_one(self, rank: str, stored: Iterable[str]) -> str:
        """Return the pod of a rank, also if it was scaled away and `stored` has it. Raises ClientError."""
        job, pods = await self.refresh(), await self.pods()
        if not ranks.select(job, pods, rank):
            chosen = ranks.chosen(job, rank, stored)
            if len(chosen) == 1:
                return chosen.pop()
        return ranks.select_one(job, pods, rank).metadata.name

    async def stacks(self, rank: str = "all") -> list[ProcessStack]:
        """Read the stacks of the processes of the run."""
        return await run_stacks(self, rank)

    async def processes(self, rank: str = "all") -> list[RankProcess]:
        """Read the files of the launcher, also after the end of the run."""
        return await run_processes(self, rank)

    async def copy_from(self, rank: str, source: str, target: Path, *, container: str = "") -> Path:
        """Copy files that a pod wrote out of the directory of the run."""
        del container
        pod = await self._select_one(rank, (path.name for path in (self.run.path / "files").iterdir()))
        try:
            found = outcome.locate_file(self.run, pod, source)
            return await asyncio.to_thread(outcome.copy_file, found, target)
        except InputError as error:
            raise ClientError(str(error)) from error

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
        """End a live run and keep its logs and files."""
        return await self._send(Command("stop"))

    async def delete(self) -> str:
        """Delete the logs, status and files of a run that is over."""
        if await self.is_at_work():
            hint = f"paddlejob stop {self.name}{self.run.run_dir_flag}"
            raise ClientError(f"{self.name} is running; stop it first with `{hint}`")
        try:
            self.run.remove()
        except InputError as error:
            raise ClientError(str(error)) from error
        return "deleted"

    def written_file(self) -> str:
        """Return the path of a file that a program of the run wrote."""
        return next((each.path for each in outcome.written_files(self.run, 1)), "")

    async def retry(self) -> LocalJob:
        """Run the same file again, as a new run."""
        if await self.is_at_work():
            raise ClientError(f"{self.name} is running; only a finished run can be retried")
        return await self._runs.start((self.run.path / "job.yaml").read_text())

    async def is_at_work(self) -> bool:
        """Return whether the run is live. Waits for a runner that cleans up after the end of its job."""
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


_Known = tuple[local_state.Fingerprint, LocalJob]


def _listed(runs: Sequence[RunDirectory]) -> str:
    return ", ".join(run.name for run in runs[:_NAMED_RUNS])
