"""Read the output of a run on this machine."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from paddlejob.api.v1 import PaddleJob
from paddlejob.client import local_state, ranks
from paddlejob.client.errors import ClientError
from paddlejob.client.logs.model import LogBlock, LogItem, LogQuery
from paddlejob.client.logs.process_log import Process, resolve
from paddlejob.core.pod_set import training_container_name
from paddlejob.local.store.history import History
from paddlejob.local.store.logs import Follower, LogLines, Tail, chosen_pods, log_label
from paddlejob.local.store.run_directory import RunDirectory

if TYPE_CHECKING:
    from paddlejob.client.local_runs import LocalJob

LOOK_SECONDS = 0.2


async def run_log(job: LocalJob, query: LogQuery) -> AsyncGenerator[LogItem, None]:
    """Yield the output in order of time, and with `follow` new output until the run is over."""
    log = _RunLog(job.run)
    if not log.pods(job.state, query.rank):
        ranks.check(job.state, query.rank)
    query, process = resolve(job.state, query)
    async for block in log.read(query) if process is None else log.read_process(query, process):
        yield block


class _RunLog:
    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._job: PaddleJob = local_state.read_record(run).job

    def pods(self, state: PaddleJob, rank: str) -> set[str]:
        """Return the pods of a rank that have output, also pods that were scaled away."""
        return ranks.chosen(state, rank, (each.name for each in (self._run.path / "logs").iterdir()))

    async def read(self, query: LogQuery) -> AsyncGenerator[LogBlock, None]:
        """Yield the output of containers."""
        pods, begin = self.pods(self._job, query.rank), _begin(query)
        self._check_container(pods, query.container)
        history = History(self._run, pods, tail=query.tail, previous=query.previous)
        if query.previous and history.is_empty:
            raise ClientError(f"{self._run.name} has no previous logs: no container was restarted")
        for piece in history.read():
            if piece.time >= begin and self._is_wanted(piece.lines, query):
                yield self._block(piece.lines, piece.time, query)
        if query.previous:
            return
        follower = Follower(self._run, history.ends)
        try:
            while query.follow and self._run.is_alive:
                for lines in follower.poll():
                    if self._is_wanted(lines, query):
                        yield self._block(lines, _now(), query)
                await asyncio.sleep(LOOK_SECONDS)
            for lines in follower.rest():
                written = self._run.log(lines.pod, lines.container).stat().st_mtime
                if written >= begin and self._is_wanted(lines, query):
                    yield self._block(lines, written, query)
        finally:
            follower.close()

    async def read_process(self, query: LogQuery, process: Process) -> AsyncGenerator[LogBlock, None]:
        """Yield the output of a process of Paddle's launcher, from its file."""
        rank, pod = f"{query.rank} rank {process.rank}", f"{self._job.name}-{query.rank}"
        path = self._run.launcher_logs(pod) / f"workerlog.{process.local_rank}"
        while not path.exists():
            if not (query.follow and self._run.is_alive):
                raise ClientError(f"{rank} has no log file: Paddle's launcher has not started this process")
            await asyncio.sleep(LOOK_SECONDS)
        tail, written = Tail(path), path.stat().st_mtime
        try:
            for text in _last_lines(_existing(tail, is_complete=not query.follow), query.tail):
                yield self._stamped(rank, text, written, query)
            while query.follow:
                is_alive = self._run.is_alive
                while text := tail.read()[0]:
                    yield self._stamped(rank, text, _now(), query)
                if not is_alive:
                    break
                await asyncio.sleep(LOOK_SECONDS)
            if rest := tail.rest():
                yield self._stamped(rank, rest, _now(), query)
        finally:
            tail.close()

    def _check_container(self, pods: set[str], container: str) -> None:
        """Raise ClientError for a container that no pod has; before the first output, all are accepted."""
        present = sorted({log.stem for pod in pods for log in self._run.logs(pod)})
        if container and present and container not in present:
            raise ClientError(f"{self._run.name} has no container {container}; it has {', '.join(present)}")

    def _is_wanted(self, lines: LogLines, query: LogQuery) -> bool:
        if not chosen_pods(self._run.job_name, query.rank, (lines.pod,)):
            return False
        return query.all_containers or lines.container == (query.container or self._training(lines.pod))

    def _training(self, pod: str) -> str:
        # The pods of the record are not used, since it has a pod only some time after its first lines.
        role = ranks.rank_of(self._run.job_name, pod).rpartition("-")[0]
        specs = (spec for name, spec in self._job.spec.roles() if name == role)
        return next(map(training_container_name, specs), "")

    def _block(self, lines: LogLines, time: float, query: LogQuery) -> LogBlock:
        is_training = lines.container == self._training(lines.pod)
        rank = log_label(self._run.job_name, lines, is_training=is_training)
        return self._stamped(rank, lines.text, time, query)

    def _stamped(self, rank: str, text: bytes, time: float, query: LogQuery) -> LogBlock:
        attempt = max(0, self._job.status.attempt - query.previous)
        stamp = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
        return LogBlock(rank, attempt, stamp + text[:-1].replace(b"\n", b"\n" + stamp) + b"\n")


def _existing(tail: Tail, *, is_complete: bool) -> Iterator[bytes]:
    """Yield the existing whole lines, and with `is_complete` also a last line without an end."""
    yield from iter(lambda: tail.read()[0], b"")
    if is_complete and (rest := tail.rest()):
        yield rest


def _last_lines(pieces: Iterator[bytes], count: int | None) -> Iterator[bytes]:
    """Yield all pieces, or the last lines; the states of a progress bar are one line."""
    if count is None:
        return pieces
    lines = (line for piece in pieces for line in piece[:-1].split(b"\n"))
    return (line + b"\n" for line in deque(lines, maxlen=count))


def _begin(query: LogQuery) -> float:
    return 0.0 if query.since_seconds is None else _now() - query.since_seconds


def _now() -> float:
    return datetime.now(UTC).timestamp()
