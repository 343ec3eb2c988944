"""The life of one pod, once all are together: copy, serve, train, wait for the others, leave."""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from paddlejob.recipe import errors
from paddlejob.recipe.address import until_listening
from paddlejob.recipe.console import Console, LogTee
from paddlejob.recipe.guard import guarded
from paddlejob.recipe.interrupt import Interruptions
from paddlejob.recipe.launch import Launch, Place, Process, plan_launch
from paddlejob.recipe.peers import Roster
from paddlejob.recipe.process import Child, running
from paddlejob.recipe.rollcall import Done, Gone, Over, Serving, Train
from paddlejob.recipe.rollcall_net import Session
from paddlejob.recipe.settings import Settings
from paddlejob.recipe.split_write import Writer
from paddlejob.recipe.workspace import check_job, fill_workspace

VERDICT_SECONDS = 5.0
"""How long trainer 0 may take to say who failed first."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and how patient to be with it."""

    command: str
    passed: tuple[str, ...] = ()
    inherited: Mapping[str, str] = {}
    ready_seconds: float = 300.0
    """How long a server may take to open its port."""
    grace_seconds: float = 25.0
    """Between SIGTERM and SIGKILL."""
    lone_trainer_seconds: float = 30.0
    """How long a trainer may outlive its server: servers that are told to end do so before the trainers."""


class TrainerError(errors.RecipeError):
    """The trainer failed or was stopped; its exit code becomes ours."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = code


class Node:
    """One pod among its peers."""

    def __init__(
        self,
        settings: Settings,
        roster: Roster,
        session: Session,
        *,
        program: Program,
        directory: Path,
        console: Console,
        interruptions: Interruptions,
    ) -> None:
        self._settings, self._roster, self._session = settings, roster, session
        self._program, self._directory = program, directory
        self._console, self._interruptions = console, interruptions
        self._logs = settings.output_directory / f"node_{roster.me}"

    async def run(self) -> None:
        """Train, and return when all trainers have succeeded.

        Raises TrainerError, PeerFailedError or another RecipeError; the other pods have been told then.
        """
        with self._telling():
            check_job(self._settings, len(self._roster.peers))
            place = await guarded(self._prepare(), self._company())
            program = self._program
            launch = plan_launch(self._settings, place, program.command, program.passed, program.inherited)
            async with self._running(launch.server, self._console.server_line) as server:
                with self._telling():
                    await self._serve_and_train(launch, server)
        self._console.say("all trainers have succeeded")

    async def _serve_and_train(self, launch: Launch, server: Child) -> None:
        await guarded(self._ready(launch), self._server_before_training(server), self._company())
        self._session.say(Serving())
        await guarded(self._session.until(Train), self._server_before_training(server))
        await self._train(launch, server)
        self._session.say(Done())
        await guarded(self._session.until(Over), self._server_without_crash(server))

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell the others of a failure at once, before what is still running here has been stopped."""
        try:
            yield
        except errors.RecipeError as error:
            self._session.say(Gone(str(error)))
            raise
        except asyncio.CancelledError:
            self._session.say(Gone("stopped"))
            raise

    async def _prepare(self) -> Place:
        me, writer = self._roster.me, Writer(lambda _size: None, durable=False)
        self._console.say(
            f"trainer {me} of {len(self._roster.peers)}: copies shard {me} to {self._directory}"
        )
        try:
            data = await asyncio.to_thread(fill_workspace, self._settings, me, self._directory, writer)
        finally:
            writer.stop()
        job_id = self._roster.job_uid or self._settings.job_name
        return Place(addresses=self._roster.addresses, me=me, data_directory=data, job_id=job_id)

    async def _ready(self, launch: Launch) -> None:
        seconds = self._program.ready_seconds
        try:
            async with asyncio.timeout(seconds):
                await until_listening(self._roster.addresses[self._roster.me], launch.ready_port)
        except TimeoutError as error:
            raise errors.RecipeError(
                f"its server opened no port {launch.ready_port} in {seconds:g} seconds: {self._see('server')}"
            ) from error

    async def _train(self, launch: Launch, server: Child) -> None:
        async with self._running(launch.trainer, self._console.trainer_line) as trainer:
            with self._telling(), self._interruptions.forwarded_to(trainer):
                code = await guarded(trainer.wait(), self._server_while_training(server), self._company())
        number = self._interruptions.received
        if number is not None:
            raise TrainerError(code or 128 + number, f"stopped by {signal.Signals(number).name}")
        if code:
            message = f"its trainer ended with exit code {code}: {self._see('train')}"
            await self._blame_who_failed_first(message)
            raise TrainerError(code, message)

    async def _blame_who_failed_first(self, message: str) -> None:
        """Raise PeerFailedError when this trainer failed only because another had gone."""
        self._session.say(Gone(message))
        try:
            async with asyncio.timeout(VERDICT_SECONDS):
                await self._company()
        except errors.PeerFailedError as error:
            if error.trainer != self._roster.me:
                raise
        except TimeoutError:
            return

    async def _company(self) -> None:
        """Raises PeerFailedError when somebody is lost."""
        await self._session.until(Over)

    async def _server_before_training(self, server: Child) -> None:
        code = await server.wait()  # a server that cannot listen ends with code 0
        raise errors.RecipeError(f"its server ended with exit code {code} too early: {self._see('server')}")

    async def _server_without_crash(self, server: Child) -> None:
        code = await server.wait()
        if code:
            raise errors.RecipeError(f"its server ended with exit code {code}: {self._see('server')}")

    async def _server_while_training(self, server: Child) -> None:
        await self._server_without_crash(server)
        seconds = self._program.lone_trainer_seconds
        await asyncio.sleep(seconds)
        raise errors.RecipeError(f"its server ended, and its trainer not within {seconds:g} seconds")

    def _running(self, process: Process, show: Callable[[bytes], None]) -> AbstractAsyncContextManager[Child]:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        header = f"--- {now} trainer {self._roster.me}: {shlex.join(process.command)}\n"
        tee = LogTee(self._logs / f"{process.name}.log", show, header)
        return running(process, self._directory, tee, self._program.inherited, self._program.grace_seconds)

    def _see(self, log: str) -> str:
        return f"see {self._logs / log}.log"
