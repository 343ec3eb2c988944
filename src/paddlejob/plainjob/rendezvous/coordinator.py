"""The barriers over TCP: a server in the pod of trainer 0, and a client in every pod."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import msgspec

from paddlejob.plainjob import errors
from paddlejob.plainjob.rendezvous import barrier
from paddlejob.plainjob.rendezvous.address import LINE_LIMIT, connect
from paddlejob.plainjob.rendezvous.barrier import (
    Abort,
    AllDone,
    Coordinator,
    FromCoordinator,
    FromTrainer,
    Join,
    Rejected,
    StartServers,
    StartTrainers,
)

CLOSE_SECONDS = 5.0

_from_trainer = msgspec.json.Decoder(FromTrainer)
_from_coordinator = msgspec.json.Decoder(FromCoordinator)
_encode = msgspec.json.Encoder().encode
_BROKEN = (OSError, ValueError, msgspec.MsgspecError, RecursionError)
"""Errors of reading a line from a broken connection, or from a peer that is not one of our pods."""


class RejoinError(Exception):
    """Joining failed; listing the pods again and retrying may succeed."""


def _send(writer: asyncio.StreamWriter, message: barrier.Message) -> None:
    if not writer.is_closing():
        writer.write(_encode(message) + b"\n")


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Detect within a minute that the other machine has lost power, which does not close a connection."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6)


async def _yield_to_others() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class CoordinatorServer:
    """Runs in the pod of trainer 0."""

    def __init__(self, addresses: tuple[str, ...], before_all_done: Callable[[], None]) -> None:
        self._coordinator = Coordinator.waiting_for(addresses)
        self._before_all_done = before_all_done
        self._trainers: dict[int, asyncio.StreamWriter] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._closing = False

    async def open(self, address: str, port: int) -> None:
        """Listen. Raises SettingsError when the port is in use."""
        try:
            self._server = await asyncio.start_server(self._accept, address, port, limit=LINE_LIMIT)
        except OSError as error:
            raise errors.SettingsError(
                f"cannot listen on {address}:{port}, the first port after the window: {error.strerror}"
            ) from error

    @property
    def absent(self) -> tuple[str, ...]:
        """The addresses of the pods that have not joined."""
        return self._coordinator.absent

    async def close(self) -> None:
        """Stop listening, give the clients time to read the last message, then close."""
        self._closing = True
        await self._stop_listening()
        if self._connections and self._coordinator.stage is not barrier.PodStage.ABSENT:
            await asyncio.wait(self._connections, timeout=CLOSE_SECONDS)
        for connection in self._connections:
            connection.cancel()
        await _yield_to_others()  # a cancelled connection needs one or two loop iterations to close

    async def _stop_listening(self) -> None:
        """Stop accepting connections. asyncio would leave a connection open that was just accepted."""
        if self._server is None:
            return
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        await _yield_to_others()
        self._server.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._handle(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        connection.add_done_callback(lambda _: writer.close())
        if self._closing:
            connection.cancel()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _keep_alive(writer)
        with contextlib.suppress(*_BROKEN):  # `_serve` has handled the loss of a trainer
            await self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        message = _from_trainer.decode(await reader.readline())
        if not isinstance(message, Join):
            return
        joined = barrier.join(self._coordinator, message)
        if isinstance(joined, Rejected):
            _send(writer, joined)
            return
        trainer = message.trainer
        self._trainers[trainer] = writer
        self._apply(joined)
        try:
            while line := await reader.readline():
                self._apply(barrier.receive(self._coordinator, trainer, _from_trainer.decode(line)))
        finally:
            del self._trainers[trainer]
            self._apply(barrier.leave(self._coordinator, trainer, "its connection broke"))

    def _apply(self, transition: barrier.Transition) -> None:
        self._coordinator = transition.coordinator
        if isinstance(transition.broadcast, AllDone):
            self._before_all_done()
        if transition.broadcast is not None:
            for writer in self._trainers.values():
                _send(writer, transition.broadcast)


class CoordinatorClient:
    """Runs in every pod. Sends messages to the coordinator and records its announcements."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        loop = asyncio.get_running_loop()
        self._announced: dict[type[FromCoordinator], asyncio.Future[None]] = {
            kind: loop.create_future() for kind in (StartServers, StartTrainers, AllDone)
        }
        for future in self._announced.values():
            future.add_done_callback(_mark_retrieved)
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def join(
        cls, address: str, port: int, message: Join, *, timeout_seconds: float
    ) -> CoordinatorClient:
        """Connect to the coordinator and join. Raises RejoinError when it does not accept in time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                reader, writer = await connect(address, port)
        except TimeoutError as error:
            raise RejoinError(f"trainer 0 is not reachable at {address}:{port} yet") from error
        _keep_alive(writer)
        client = cls(reader, writer)
        client.send(message)
        return client

    def send(self, message: FromTrainer) -> None:
        """Send a message to the coordinator."""
        _send(self._writer, message)

    async def wait_for(self, kind: type[StartServers | StartTrainers | AllDone]) -> None:
        """Wait for an announcement.

        Raises RejoinError when rejected or disconnected before all have joined, PeerFailedError later.
        """
        await asyncio.shield(self._announced[kind])

    async def close(self) -> None:
        """Disconnect, after everything has been sent."""
        self._listening.cancel()
        await asyncio.wait([self._listening])
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), CLOSE_SECONDS)

    async def _listen(self) -> None:
        failure = Abort(0, "the connection to trainer 0 broke")
        with contextlib.suppress(*_BROKEN):
            while line := await self._reader.readline():
                message = _from_coordinator.decode(line)
                if isinstance(message, Abort | Rejected):
                    failure = message if isinstance(message, Abort) else Abort(0, message.reason)
                    break
                announced = self._announced[type(message)]
                if not announced.done():
                    announced.set_result(None)
                if isinstance(message, AllDone):
                    break
        self._fail(failure)
        self._writer.close()  # not in `close`: the coordinator waits for it before it exits

    def _fail(self, failure: Abort) -> None:
        all_joined = self._announced[StartServers].done()
        for future in self._announced.values():
            if not future.done():
                future.set_exception(
                    errors.PeerFailedError(failure.reason, failure.trainer)
                    if all_joined
                    else RejoinError(failure.reason)
                )


def _mark_retrieved(future: asyncio.Future[None]) -> None:
    """Prevent a warning of asyncio for an announcement without a waiter."""
    if not future.cancelled():
        future.exception()
