"""The supervisor's open question to the operator: "this is my state; is there anything to do?"

The operator answers when there is something to do, or after 20 seconds. Nothing here blocks, because the
process that asks also passes on signals and reaps children. Each wait is a `yield` of a generator.
"""

from __future__ import annotations

import errno
import functools
import json
import math
import os
import random
import socket
import ssl
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Generator, List, Tuple
from urllib.parse import urlsplit

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 25.0
"""The operator holds a question for up to 20 seconds. Without an answer the connection is dead."""
RETRY_SECONDS = 1.0
REFUSED_SECONDS = 0.1
REFUSED_TRIES = 4
"""Only the leader of several operators listens, but a connection may reach any of them."""
AWAY_SECONDS = 60.0
AWAY_RETRY_SECONDS = 5.0
"""An operator that has been away for AWAY_SECONDS is asked less often: for a refusal of thousands of pods it
would make a TLS connection each. A program that is down has been given up by then."""
MAX_PAUSE_SECONDS = 60.0
MAX_BYTES = 1 << 20

Fds = Tuple[List[int], List[int]]
"""Descriptors to wait for: to read, and to write."""
Waits = Generator[Fds, None, Any]


class RefusedError(Exception):
    """An answer with another status than 200, and the pause that it asks for."""

    def __init__(self, status: int, pause: Any) -> None:
        super().__init__(status)
        self.pause = float(pause)


class Attend:
    """Asks one question at a time; `directory` has the operator's certificate and the pod's token."""

    def __init__(self, url: str, directory: str) -> None:
        self._url = urlsplit(url)
        self._directory = directory
        self._addresses: list[Any] = []
        self._socket: Any = None
        self._pipe = -1
        self._question: Waits | None = None
        self._ask_at = self._asked_at = 0.0
        self._give_up_at = math.inf
        self._refusals = 0
        self._number = 0
        self.fds: Fds = ([], [])
        self.answered_at = time.monotonic()

    def seconds(self) -> float:
        """Return the time after which `advance` has something to do in any case."""
        return max(0.0, (self._ask_at if self._question is None else self._give_up_at) - time.monotonic())

    def withdraw(self) -> None:
        """Ask again at once, because the state has changed."""
        if self._question is not None:
            self.close()
        self._ask_at = 0.0

    def advance(self, state: Dict[str, Any]) -> Dict[str, Any] | None:
        """Ask if it is time, and return an answer when there is one."""
        now = time.monotonic()
        if self._question is None:
            if now < self._ask_at:
                return None
            self._question, self._asked_at, self._give_up_at = self._ask(state), now, now + CONNECT_SECONDS
        if now >= self._give_up_at:
            self._fail(TimeoutError())
            return None
        try:
            self.fds = next(self._question)
        except StopIteration as done:
            return self._end(done.value)
        except Exception as error:
            self._fail(error)
        return None

    def close(self) -> None:
        """Close the connection, and forget the question."""
        self._question, self.fds = None, ([], [])
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def _end(self, answer: Dict[str, Any]) -> Dict[str, Any]:
        self._question, self.fds, self._refusals = None, ([], []), 0
        self.answered_at = time.monotonic()
        pause = min(MAX_PAUSE_SECONDS, max(0.0, float(answer.get("nextSeconds", 0))))
        # Answers that come at once and change nothing must not keep two processes busy.
        self._ask_at = max(self.answered_at + pause, self._asked_at + RETRY_SECONDS)
        return answer

    def _fail(self, error: Exception) -> None:
        self.close()
        # The next address, or the same host looked up again.
        del self._addresses[:1]
        self._refusals = self._refusals + 1 if isinstance(error, ConnectionRefusedError) else 0
        pause = REFUSED_SECONDS if self._refusals % REFUSED_TRIES else RETRY_SECONDS
        if time.monotonic() - self.answered_at > AWAY_SECONDS:
            pause = AWAY_RETRY_SECONDS
        if isinstance(error, RefusedError):
            pause = min(MAX_PAUSE_SECONDS, max(pause, error.pause))
        self._ask_at = time.monotonic() + pause * random.uniform(0.8, 1.2)  # noqa: S311  (jitter, not security)

    def _ask(self, state: Dict[str, Any]) -> Waits:
        # A question that was withdrawn may still arrive, and then after this one.
        self._number += 1
        request = self._request(json.dumps(dict(state, number=self._number)).encode())
        if self._socket is not None:
            try:
                return (yield from self._exchange(request))
            except OSError:
                # The server may close an idle connection at any time; connect again.
                self._socket.close()
        yield from self._connect()
        return (yield from self._exchange(request))

    def _request(self, body: bytes) -> bytes:
        with open(os.path.join(self._directory, "token"), encoding="ascii") as file:
            token = file.read().strip()
        lines = (
            "POST %s HTTP/1.1" % (self._url.path or "/"),
            "Host: %s" % self._url.netloc,
            "Authorization: Bearer %s" % token,
            "Content-Type: application/json",
            "Content-Length: %d" % len(body),
        )
        return "\r\n".join((*lines, "", "")).encode("ascii") + body

    # --- connection

    def _connect(self) -> Waits:
        self._give_up_at = time.monotonic() + CONNECT_SECONDS
        if not self._addresses:
            yield from self._look_up()
        family, kind, protocol, _, address = self._addresses[0]
        self._socket = socket.socket(family, kind, protocol)
        self._socket.setblocking(False)  # noqa: FBT003
        while True:
            error = self._socket.connect_ex(tuple(address))
            if error in (0, errno.EISCONN):
                break
            if error not in (errno.EINPROGRESS, errno.EALREADY):
                raise OSError(error, os.strerror(error))
            yield [], [self._socket.fileno()]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Only the operator's certificate is trusted, so its host name does not matter.
        context.check_hostname = False
        context.load_verify_locations(os.path.join(self._directory, "ca.crt"))
        self._socket = context.wrap_socket(self._socket, do_handshake_on_connect=False)
        yield from self._retry(self._socket.do_handshake)

    def _look_up(self) -> Waits:
        host, port = self._url.hostname or "", self._url.port or 443
        with suppress(socket.gaierror):
            flags = socket.AI_NUMERICHOST
            self._addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
            return
        # In a process of its own, because a name server that is away blocks the caller for many seconds.
        self._pipe, writer = os.pipe()
        try:
            if os.fork() == 0:
                try:
                    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                    os.write(writer, json.dumps(found).encode())
                finally:
                    os._exit(0)
        finally:
            os.close(writer)
        os.set_blocking(self._pipe, False)
        while True:
            try:
                self._addresses = json.loads(os.read(self._pipe, MAX_BYTES))
                break
            except BlockingIOError:
                yield [self._pipe], []
        os.close(self._pipe)
        self._pipe = -1

    # --- HTTP

    def _exchange(self, request: bytes) -> Waits:
        self._give_up_at = time.monotonic() + ANSWER_SECONDS
        while request:
            sent = yield from self._retry(functools.partial(self._socket.send, request))
            request = request[sent:]
        head, body = yield from self._receive()
        status = int(head.split(b" ", 2)[1])
        if _header(head, b"connection") == b"close":
            self._socket.close()
            self._socket = None
        answer = json.loads(body or b"{}")
        if status != 200:
            raise RefusedError(status, answer.get("nextSeconds", 0))
        if type(answer.get("run", 0)) is not int or not isinstance(answer.get("env", {}), dict):
            raise ValueError(answer)
        return answer

    def _receive(self) -> Generator[Fds, None, Tuple[bytes, bytes]]:
        data = b""
        while len(data) < MAX_BYTES:
            part = yield from self._retry(functools.partial(self._socket.recv, 65536))
            if not part:
                break
            data += part
            head, separator, body = data.partition(b"\r\n\r\n")
            if separator and len(body) >= int(_header(head, b"content-length") or b"0"):
                return head.lower(), body
        raise ConnectionError("no whole answer")

    def _retry(self, action: Callable[[], Any]) -> Waits:
        """Repeat an action until it need not wait: TLS has messages of its own in both directions."""
        while True:
            try:
                return action()
            except ssl.SSLWantReadError:
                yield [self._socket.fileno()], []
            except ssl.SSLWantWriteError:
                yield [], [self._socket.fileno()]


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.lower().split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key == name:
            return value.strip()
    return b""
