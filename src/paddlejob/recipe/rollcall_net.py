"""The roll call over TCP: a hub at trainer 0, and one session from every pod to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TypeVar

import msgspec

from paddlejob.recipe import errors, rollcall
from paddlejob.recipe.address import LINE_LIMIT, connect
from paddlejob.recipe.rollcall import (
    Abort,
    FromHub,
    FromMember,
    Hello,
    Hub,
    Over,
    Refused,
    Serve,
    Train,
)

GOODBYE_SECONDS = 5.0

_from_member = msgspec.json.Decoder(FromMember)
_from_hub = msgspec.json.Decoder(FromHub)
_encode = msgspec.json.Encoder().encode

T = TypeVar("T")


class NotTogetherError(Exception):
    """An attempt to join failed; looking at the pods again and trying once more may succeed."""


def _send(writer: asyncio.StreamWriter, message: rollcall.Message) -> None:
    if not writer.is_closing():
        writer.write(_encode(message) + b"\n")


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Notice within a minute that the other machine has lost its power, which sends no goodbye."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6)


async def _let_others_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class HubServer:
    """Trainer 0's side: hears everybody, tells everybody."""

    def __init__(self, roster: tuple[str, ...], before_over: Callable[[], None]) -> None:
        self._hub = Hub.waiting_for(roster)
        self._before_over = before_over
        self._members: dict[int, asyncio.StreamWriter] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._closing = False

    async def open(self, address: str, port: int) -> None:
        """Listen. Raises SettingsError when the port is taken."""
        try:
            self._server = await asyncio.start_server(self._admit, address, port, limit=LINE_LIMIT)
        except OSError as error:
            raise errors.SettingsError(
                f"cannot listen at {address}:{port}, the port after the window: {error.strerror}"
            ) from error

    @property
    def absent(self) -> tuple[str, ...]:
        """The addresses that have not come."""
        return self._hub.absent

    async def close(self) -> None:
        """Say the last words, give the members time to hang up, and close."""
        self._closing = True
        await self._stop_listening()
        if self._connections and self._hub.stage is not rollcall.Stage.ABSENT:
            await asyncio.wait(self._connections, timeout=GOODBYE_SECONDS)
        for connection in self._connections:
            connection.cancel()
        await _let_others_run()  # a connection closes a turn or two after it is told to

    async def _stop_listening(self) -> None:
        """Take no more connections, without dropping one just accepted: asyncio would leave it open."""
        if self._server is None:
            return
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        await _let_others_run()
        self._server.close()

    def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._attend(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        connection.add_done_callback(lambda _: writer.close())
        if self._closing:
            connection.cancel()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _keep_alive(writer)
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError, RecursionError):
            # Of a broken line or a stranger; `_converse` has drawn the consequences.
            await self._converse(reader, writer)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = _from_member.decode(await reader.readline())
        if not isinstance(hello, Hello):
            return
        admitted = rollcall.admit(self._hub, hello)
        if isinstance(admitted, Refused):
            _send(writer, admitted)
            return
        self._members[hello.member] = writer
        self._apply(admitted)
        try:
            while line := await reader.readline():
                message = _from_member.decode(line)
                self._apply(rollcall.hear(self._hub, hello.member, message))
        finally:
            del self._members[hello.member]
            self._apply(rollcall.lose(self._hub, hello.member, "its connection broke"))

    def _apply(self, step: rollcall.Step) -> None:
        self._hub = step.hub
        if isinstance(step.tell_all, Over):
            self._before_over()
        if step.tell_all is not None:
            for writer in self._members.values():
                _send(writer, step.tell_all)


class Session:
    """A pod's side: what the hub has announced so far, and the way to speak to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        loop = asyncio.get_running_loop()
        self._announced: dict[type[FromHub], asyncio.Future[None]] = {
            kind: loop.create_future() for kind in (Serve, Train, Over)
        }
        for future in self._announced.values():
            future.add_done_callback(_retrieve)
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def join(cls, address: str, port: int, hello: Hello, patience_seconds: float) -> Session:
        """Connect to the hub and say Hello. Raises NotTogetherError when it does not answer in time."""
        try:
            async with asyncio.timeout(patience_seconds):
                reader, writer = await connect(address, port)
        except TimeoutError as error:
            raise NotTogetherError(f"trainer 0 does not answer at {address}:{port} yet") from error
        _keep_alive(writer)
        session = cls(reader, writer)
        session.say(hello)
        return session

    def say(self, message: FromMember) -> None:
        """Tell the hub."""
        _send(self._writer, message)

    async def until(self, kind: type[Serve | Train | Over]) -> None:
        """Wait for an announcement.

        Raises NotTogetherError when refused or disconnected before all have come, PeerFailedError later.
        """
        await asyncio.shield(self._announced[kind])

    async def close(self) -> None:
        """Hang up, after all that was said has been sent."""
        self._listening.cancel()
        await asyncio.wait([self._listening])
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), GOODBYE_SECONDS)

    async def _listen(self) -> None:
        failure = Abort(0, "the connection to trainer 0 broke")
        try:
            while line := await self._reader.readline():
                message = _from_hub.decode(line)
                if isinstance(message, Refused):
                    failure = Abort(0, message.reason)
                    break
                if isinstance(message, Abort):
                    failure = message
                    break
                self._announced[type(message)].set_result(None)
                if isinstance(message, Over):
                    break
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
            pass  # a broken line: the hub is gone, as far as this pod can tell
        self._fail(failure)
        self._writer.close()  # at once, since the hub waits for it before it leaves

    def _fail(self, failure: Abort) -> None:
        together = self._announced[Serve].done()
        for future in self._announced.values():
            if not future.done():
                future.set_exception(
                    errors.PeerFailedError(failure.reason, failure.member)
                    if together
                    else NotTogetherError(failure.reason)
                )


def _retrieve(future: asyncio.Future[None]) -> None:
    """Nobody may be waiting for this announcement; that is no reason for a warning."""
    if not future.cancelled():
        future.exception()
