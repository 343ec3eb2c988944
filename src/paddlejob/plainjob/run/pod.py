"""Run one pod after all pods have joined: copy its shard, serve, train, wait for the others, exit."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from paddlejob.plainjob import errors
from paddlejob.plainjob.data import manifest
from paddlejob.plainjob.data.layout import Source
from paddlejob.plainjob.data.manifest import ShardManifest
from paddlejob.plainjob.data.scripts import ignore_data
from paddlejob.plainjob.data.writer import Writer, make_parent, whole
from paddlejob.plainjob.rendezvous.address import until_listening
from paddlejob.plainjob.rendezvous.barrier import AllDone, Left, ServerReady, StartTrainers, TrainerDone
from paddlejob.plainjob.rendezvous.coordinator import CoordinatorClient
from paddlejob.plainjob.rendezvous.peers import Peers
from paddlejob.plainjob.run.console import Console, LogTee
from paddlejob.plainjob.run.launch import Launch, Place, ProcessSpec, plan_launch
from paddlejob.plainjob.run.process import Child, SignalForwarder, run_process
from paddlejob.plainjob.settings import JobSettings

T = TypeVar("T")

FIRST_FAILURE_SECONDS = 5.0
"""How long trainer 0 may take to report which pod failed first."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The program to run, and how long to wait for it."""

    command: str
    passed: tuple[str, ...] = ()
    inherited: Mapping[str, str] = {}
    ready_seconds: float = 300.0
    """How long a server may take to open its port."""
    grace_seconds: float = 25.0
    """The time between SIGTERM and SIGKILL."""
    lone_trainer_seconds: float = 30.0
    """How long a trainer may outlive its server. Servers stop before the trainers."""


class TrainerError(errors.PlainJobError):
    """The trainer failed or was stopped. Its exit code becomes the pod's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = code


class PodRunner:
    """One pod among its peers."""

    def __init__(
        self,
        settings: JobSettings,
        peers: Peers,
        client: CoordinatorClient,
        *,
        program: Program,
        directory: Path,
        console: Console,
        signals: SignalForwarder,
    ) -> None:
        self._settings, self._peers, self._client = settings, peers, client
        self._program, self._directory = program, directory
        self._console, self._signals = console, signals
        self._split = ""
        self._logs = settings.output_directory / f"node_{peers.me}"

    async def run(self) -> None:
        """Train, and return when all trainers have succeeded.

        Raises TrainerError, PeerFailedError or another PlainJobError, after informing the other pods.
        """
        with self._report_failure():
            check_job(self._settings, len(self._peers.peers))
            place = await race(self._prepare(), self._peer_failure())
            program = self._program
            launch = plan_launch(self._settings, place, program.command, program.passed, program.inherited)
            async with self._running(launch.server, self._console.server_line) as server:
                with self._report_failure():
                    await self._serve_and_train(launch, server)
        self._console.say("all trainers have succeeded")

    async def _serve_and_train(self, launch: Launch, server: Child) -> None:
        await race(self._ready(launch), self._server_before_training(server), self._peer_failure())
        self._client.send(ServerReady(self._split))
        await race(self._client.wait_for(StartTrainers), self._server_before_training(server))
        await self._train(launch, server)
        self._client.send(TrainerDone())
        await race(self._client.wait_for(AllDone), self._server_without_crash(server))

    @contextmanager
    def _report_failure(self) -> Iterator[None]:
        """Report a failure to the other pods before stopping the processes of this one."""
        try:
            yield
        except errors.PlainJobError as error:
            self._client.send(Left(str(error)))
            raise
        except asyncio.CancelledError:
            self._client.send(Left("stopped"))
            raise

    async def _prepare(self) -> Place:
        me, writer = self._peers.me, Writer(lambda _size: None, durable=False)
        self._console.say(
            f"trainer {me} of {len(self._peers.peers)}: copying shard {me} to {self._directory}"
        )
        try:
            workspace = await asyncio.to_thread(fill_workspace, self._settings, me, self._directory, writer)
        finally:
            writer.stop()
        self._split = workspace.split
        job_id = self._peers.job_uid or self._settings.job_name
        return Place(addresses=self._peers.addresses, me=me, data_directory=workspace.data, job_id=job_id)

    async def _ready(self, launch: Launch) -> None:
        seconds = self._program.ready_seconds
        try:
            async with asyncio.timeout(seconds):
                await until_listening(self._peers.addresses[self._peers.me], launch.ready_port)
        except TimeoutError as error:
            raise errors.PlainJobError(
                f"its server did not open port {launch.ready_port} in {seconds:g} s: {self._see('server')}"
            ) from error

    async def _train(self, launch: Launch, server: Child) -> None:
        async with self._running(launch.trainer, self._console.trainer_line) as trainer:
            with self._report_failure(), self._signals.forward_to(trainer):
                code = await race(trainer.wait(), self._server_while_training(server), self._peer_failure())
        number = self._signals.received
        if number is not None:
            raise TrainerError(code or 128 + number, f"stopped by {signal.Signals(number).name}")
        if code:
            message = f"its trainer exited with code {code}: {self._see('train')}"
            await self._raise_first_failure(message)
            raise TrainerError(code, message)

    async def _raise_first_failure(self, message: str) -> None:
        """Raise PeerFailedError if this trainer failed only because another pod had left."""
        self._client.send(Left(message))
        try:
            async with asyncio.timeout(FIRST_FAILURE_SECONDS):
                await self._peer_failure()
        except errors.PeerFailedError as error:
            if error.trainer != self._peers.me:
                raise
        except TimeoutError:
            return

    async def _peer_failure(self) -> None:
        """Raise PeerFailedError when another pod is lost."""
        await self._client.wait_for(AllDone)

    async def _server_before_training(self, server: Child) -> None:
        code = await server.wait()  # a server that cannot listen exits with code 0
        raise errors.PlainJobError(f"its server exited with code {code} too early: {self._see('server')}")

    async def _server_without_crash(self, server: Child) -> None:
        code = await server.wait()
        if code:
            raise errors.PlainJobError(f"its server exited with code {code}: {self._see('server')}")

    async def _server_while_training(self, server: Child) -> None:
        await self._server_without_crash(server)
        seconds = self._program.lone_trainer_seconds
        await asyncio.sleep(seconds)
        raise errors.PlainJobError(f"its server exited, but its trainer did not within {seconds:g} seconds")

    def _running(
        self, process: ProcessSpec, show: Callable[[bytes], None]
    ) -> AbstractAsyncContextManager[Child]:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        header = f"--- {now} trainer {self._peers.me} commandline: {shlex.join(process.command)}\n"
        header += "".join(f"--- {line}\n" for line in process.settings)
        tee = LogTee(self._logs / f"{process.name}.log", show, header, self._console.say)
        return run_process(
            process, self._directory, tee, self._program.inherited, self._program.grace_seconds
        )

    def _see(self, log: str) -> str:
        return f"see {self._logs / log}.log"


async def race(work: Coroutine[Any, Any, T], *guards: Coroutine[Any, Any, None]) -> T:
    """Return the result of `work`. If a guard raises first, cancel the work and raise its exception.

    A guard may return early. All tasks have ended when this returns.
    """
    main = asyncio.ensure_future(work)
    watching = [asyncio.ensure_future(guard) for guard in guards]
    try:
        pending: set[asyncio.Future[Any]] = {main, *watching}
        while not main.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for guard in done - {main}:
                if not main.done():
                    guard.result()
        return main.result()
    finally:
        await _cancel([main, *watching])


async def _cancel(tasks: list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # prevents a warning of asyncio


MARKER = ".paddlejob-workdir"


class Workspace(msgspec.Struct, frozen=True):
    """A working directory that is ready to train in."""

    data: Path
    split: str
    """The split of the data; empty if `paddlejob data split` did not write it."""


def check_job(settings: JobSettings, trainers: int) -> None:
    """Refuse missing scripts, and data not split for this number of trainers. Raises DataError."""
    if not settings.config_directory.is_dir():
        raise errors.DataError(
            f"TRAIN_CONFIG_DIR {settings.config_directory} is not a directory: put the training scripts there"
        )
    job = settings.job_directory
    found = manifest.read_job(job)
    if found is None:
        if any((job / str(index) / manifest.NAME).exists() for index in range(trainers)):
            raise _unfinished(job)
    elif found.split_count != trainers:
        raise errors.DataError(
            f"the data in {job} is split into {found.split_count} shards, "
            f"but the Job has {trainers} trainers: make them equal"
        )


def _unfinished(job: Path) -> errors.DataError:
    return errors.DataError(
        f"the split in {job} is not finished: run the same `paddlejob data split` command again"
    )


def fill_workspace(settings: JobSettings, trainer: int, directory: Path, writer: Writer) -> Workspace:
    """Copy scripts and shard.

    Guarantees: data that `paddlejob data split` wrote belongs to one finished split, is complete, and is
    compared with its checksums during the copy. Other data is copied without checks.
    Raises SettingsError, DataError, SpaceError.
    """
    _claim(directory)
    try:
        shutil.copytree(
            settings.config_directory,
            directory,
            ignore=ignore_data(settings.config_directory),
            dirs_exist_ok=True,
        )
    except (OSError, shutil.Error) as error:
        raise errors.DataError(f"cannot copy {settings.config_directory} to {directory}: {error}") from error
    shard = settings.job_directory / str(trainer) / "data"
    if not shard.is_dir():
        raise errors.DataError(
            f"there is no shard for trainer {trainer}: {shard} is missing; run `paddlejob data split` first"
        )
    facts = _facts(settings.job_directory, trainer)
    sources = list(_files(shard))
    if facts is not None:
        sources = _listed(shard, facts, {source.name: source for source in sources})
    for source in sources:
        _copy(source, directory / "data" / source.name, facts, writer)
    return Workspace(directory / "data", facts.split if facts is not None else "")


def _facts(job: Path, trainer: int) -> ShardManifest | None:
    """Return the manifest of a shard, None if `paddlejob data split` did not write it."""
    whole_split, own = manifest.read_job(job), manifest.read_shard(job, trainer)
    if whole_split is None and own is not None:
        raise _unfinished(job)
    if whole_split is not None and own not in whole_split.shards:
        raise errors.DataError(
            f"{job / str(trainer)} is not part of the split of {job / manifest.NAME}: split the data again"
        )
    return own


def _listed(shard: Path, facts: ShardManifest, found: Mapping[str, Source]) -> list[Source]:
    """Return the files of a manifest. Raises DataError for a missing or additional file."""
    listed = {entry.path for entry in facts.files}
    for name in sorted(listed - found.keys()):
        raise errors.DataError(f"{shard / name} is missing: split the data again")
    for name in sorted(found.keys() - listed):
        if not name.rpartition("/")[2].startswith("."):  # such as NFS files of removed ones
            raise errors.DataError(f"{shard / name} is not part of the split: move it away, or split it too")
    return [found[entry.path] for entry in facts.files]


def _claim(directory: Path) -> None:
    """Mark the directory as ours and remove an earlier shard. Other files are never overwritten."""
    directory.mkdir(parents=True, exist_ok=True)
    marker = directory / MARKER
    foreign = [entry for entry in directory.iterdir() if entry.name != "lost+found"]
    if foreign and not marker.exists():
        raise errors.SettingsError(f"--workdir {directory} is not empty: use an empty or new directory")
    marker.touch()
    shutil.rmtree(directory / "data", ignore_errors=True)


def _files(shard: Path) -> Iterator[Source]:
    for path in sorted(shard.rglob("*")):
        if path.is_file():
            yield Source.of(path, path.relative_to(shard).as_posix())


def _copy(source: Source, target: Path, facts: ShardManifest | None, writer: Writer) -> None:
    make_parent(target)
    copied = writer.copy(whole(source), target)
    wanted = {entry.path: entry.sha256 for entry in facts.files} if facts is not None else {}
    if wanted.get(source.name, copied.sha256) != copied.sha256:
        raise errors.DataError(f"{source.origin} differs from its checksum: split the data again")
