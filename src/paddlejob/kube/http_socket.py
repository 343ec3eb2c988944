"""Sockets that are connected, and that speak TLS, without ever blocking the event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult

from paddlejob.kube.address import port_of

_ANOTHER_ADDRESS_AFTER_SECONDS = 0.25
"""When a name has several addresses and the first gives no sign; the first that answers is taken."""

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]


async def connect(url: SplitResult) -> socket.socket:
    """Return a socket that is connected to the host of a URL.

    Raises OSError when none of its addresses can be reached: what the first of them said.
    """
    loop = asyncio.get_running_loop()
    untried, failures = deque(await _addresses(url)), list[BaseException]()
    attempts: set[asyncio.Task[socket.socket]] = set()
    try:
        while untried or attempts:
            if untried:
                attempts.add(loop.create_task(_connect_to(untried.popleft())))
            patience = _ANOTHER_ADDRESS_AFTER_SECONDS if untried else None
            ended, _ = await asyncio.wait(attempts, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for attempt in ended:
                attempts.discard(attempt)
                failure = attempt.exception()
                if failure is None:
                    return attempt.result()
                failures.append(failure)
    finally:
        for attempt in attempts:
            attempt.add_done_callback(_close_late)
            attempt.cancel()
    raise failures[0]


async def shake_hands(sock: socket.socket, context: ssl.SSLContext, name: str) -> ssl.SSLSocket:
    """Return the socket with TLS on it, after the server has shown that it is `name`.

    Raises OSError, of which SSLError is one, and closes the socket when they cannot agree.
    """
    secure: socket.socket = sock
    try:
        secure = wrapped = context.wrap_socket(sock, do_handshake_on_connect=False, server_hostname=name)
        while True:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                await _ready(wrapped, to_write=False)
            except ssl.SSLWantWriteError:
                await _ready(wrapped, to_write=True)
            else:
                return wrapped
    except BaseException:
        secure.close()
        raise


async def _addresses(url: SplitResult) -> Sequence[AddressInfo]:
    """Look a host up, unless it is an address already, which needs no thread to wait in."""
    host, port = url.hostname or "", port_of(url)
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _connect_to(address: AddressInfo) -> socket.socket:
    family, kind, protocol, _, where = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def _close_late(attempt: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that came second."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


async def _ready(sock: socket.socket, *, to_write: bool) -> None:
    """Return when a socket can be read, or written."""
    loop, descriptor = asyncio.get_running_loop(), sock.fileno()
    ready = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if to_write else (loop.add_reader, loop.remove_reader)
    add(descriptor, _resolve, ready)
    try:
        await ready
    finally:
        remove(descriptor)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
