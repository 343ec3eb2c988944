"""Seeded faults between a client and an API server.

    faults = Faults(random.Random(seed), FaultRates(lost_reply=0.05, watch_cut=0.1))
    client = Client(faults.wrap(server.transport("operator")))
    ...
    faults.heal()  # no new faults: the system must converge

Each fault can be observed by a client of a real cluster. A request that failed may have taken effect or not,
depending on the fault; a request that was refused with 429 or 503 never has. Watches are cut, silenced,
delayed and expired, but their events are in order.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec

from paddlejob.kube.errors import ApiError, TransportError, TransportTimeoutError
from paddlejob.kube.transport import Response, Stream, Transport
from simkube.apiserver import refusals, watches
from simkube.faults import stream as fault_stream

Send = Callable[[], Awaitable[Response]]

_WRITES = frozenset(["POST", "PUT", "PATCH", "DELETE"])


class FaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """How often each fault happens: the chance for each request, or for each watch."""

    connect_error: float = 0.0
    """No answer, and nothing happened."""
    lost_reply: float = 0.0
    """No answer, and it took effect."""
    duplicated: float = 0.0
    """A proxy on the way sends the request twice and passes the second answer on."""
    conflict: float = 0.0
    """409 to a replace or a patch, as after a concurrent write."""
    too_many_requests: float = 0.0
    """429 with Retry-After."""
    unavailable: float = 0.0
    """503 with Retry-After, before it took effect."""
    server_error: float = 0.0
    """500, before or after it took effect."""
    slow: float = 0.0
    """A delay of up to `slow_seconds`, before and after it takes effect; past the timeout, no answer."""
    slow_seconds: float = 40.0
    page_gone: float = 0.0
    """410 to a list request with a continue token."""

    watch_refused: float = 0.0
    """A watch or list that cannot be opened: no connection, 429 or 500."""
    watch_gone: float = 0.0
    """410, as a status or as an event, at the start or later."""
    watch_closed: float = 0.0
    """The stream ends early, after a whole event."""
    watch_cut: float = 0.0
    """The connection breaks in the middle of an event."""
    watch_silent: float = 0.0
    """Half-open: no event arrives and no error is reported."""
    watch_delayed: float = 0.0
    """Events arrive up to `watch_delay_seconds` late, so that kinds arrive in another order."""
    watch_delay_seconds: float = 20.0
    watch_life_seconds: float = 120.0
    """Faults of a watch happen within this time."""

    @classmethod
    def everything(cls, rate: float = 0.05) -> FaultRates:
        """Return rates under which all of it happens."""
        return cls(
            connect_error=rate,
            lost_reply=rate,
            duplicated=rate / 2,
            conflict=rate,
            too_many_requests=rate,
            unavailable=rate / 2,
            server_error=rate,
            slow=rate,
            page_gone=rate,
            watch_refused=rate,
            watch_gone=rate,
            watch_closed=2 * rate,
            watch_cut=2 * rate,
            watch_silent=rate,
            watch_delayed=4 * rate,
        )


class Faults:
    """Draws faults from a seed, and counts them."""

    def __init__(self, rng: random.Random, rates: FaultRates | None = None) -> None:
        self.rng = rng
        self.rates = rates or FaultRates()
        self.counts: Counter[str] = Counter()
        self._healed = False

    def wrap(self, transport: Transport) -> FaultyTransport:
        """Return a transport with faults in front of another."""
        return FaultyTransport(transport, self)

    def heal(self) -> None:
        """Stop all faults; a watch that has gone silent stays so, as with TCP."""
        self._healed = True

    def relapse(self, rates: FaultRates | None = None) -> None:
        """Resume faults."""
        self._healed = False
        self.rates = rates or self.rates

    def strikes(self, fault: str) -> bool:
        """Draw whether a fault happens, and count it when it does."""
        rate: float = getattr(self.rates, fault)
        if self._healed or not rate or self.rng.random() >= rate:
            return False
        self.counts[fault] += 1
        return True

    @property
    def healed(self) -> bool:
        """Whether faults have stopped."""
        return self._healed


class FaultyTransport:
    """A `Transport` with faults; it can also simulate a process that crashes."""

    def __init__(self, inner: Transport, faults: Faults) -> None:
        self.writes = 0
        """How many writes have reached the server."""
        self._inner = inner
        self._faults = faults
        self._crash_at: int | None = None
        self._crash: Callable[[], object] | None = None
        self._dead = False

    def crash_after(self, writes: int, crash: Callable[[], object]) -> None:
        """Call `crash` after this many more writes, for example to cancel an operator's task.

        From then on every request fails: the writer does not learn the result of its write, and later
        requests of the dying process are lost. Refused writes count too.
        """
        self._crash_at = self.writes + writes
        self._crash = crash

    def kill(self) -> None:
        """Fail every request from now on."""
        self._dead = True

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = 30.0,
    ) -> Response:
        """Send a request, with faults."""
        self._check_alive()

        async def send() -> Response:
            response = await self._inner.request(
                method,
                path,
                query=query,
                body=body,
                content_type=content_type,
                timeout_seconds=timeout_seconds,
            )
            if method in _WRITES:
                self._count_write()
            return response

        more_pages = method == "GET" and bool(query and query.get("continue"))
        if more_pages and self._faults.strikes("page_gone"):
            return refusals.response(refusals.expired("The provided continue parameter is too old"))
        if self._faults.strikes("slow"):
            return await self._exchange_slowly(method, send, timeout_seconds)
        return await self._exchange(method, send)

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        idle_timeout_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Stream]:
        """Open a stream, with faults."""
        return self._stream(path, query or {}, idle_timeout_seconds)

    async def close(self) -> None:
        """Close the wrapped transport."""
        await self._inner.close()

    async def _exchange_slowly(self, method: str, send: Send, timeout_seconds: float | None) -> Response:
        rng, rates = self._faults.rng, self._faults.rates
        total = rng.uniform(0, rates.slow_seconds)
        before = rng.uniform(0, total)
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.sleep(before)
                self._check_alive()
                response = await self._exchange(method, send)
                await asyncio.sleep(total - before)
        except TimeoutError as error:
            raise TransportTimeoutError(f"{method}: no answer in {timeout_seconds} s") from error
        return response

    async def _exchange(self, method: str, send: Send) -> Response:
        faults = self._faults
        if faults.strikes("connect_error"):
            raise TransportError(f"{method}: connection refused")
        refusal = self._refusal(method)
        if refusal is not None:
            return refusal
        if faults.strikes("server_error"):
            if faults.rng.random() < 0.5:
                await send()
            return refusals.response(refusals.refusal(500, "InternalError", "etcdserver: request timed out"))
        if faults.strikes("duplicated"):
            await send()
        response = await send()
        if faults.strikes("lost_reply"):
            raise TransportError(f"{method}: connection reset before the answer")
        return response

    def _refusal(self, method: str) -> Response | None:
        """Return the answer of a server that does not begin with the request."""
        faults = self._faults
        if faults.strikes("too_many_requests"):
            return refusals.response(_slow_down(faults.rng))
        if faults.strikes("unavailable"):
            error = refusals.refusal(
                503, "ServiceUnavailable", "the apiserver is shutting down", retry_after_seconds=1
            )
            return refusals.response(error)
        if method in {"PUT", "PATCH"} and faults.strikes("conflict"):
            why = (
                "the object has been modified; please apply your changes to the latest version and try again"
            )
            return refusals.response(
                refusals.refusal(409, "Conflict", f"Operation cannot be fulfilled: {why}")
            )
        return None

    def _count_write(self) -> None:
        self.writes += 1
        if self._crash is not None and self._crash_at == self.writes:
            self._dead = True
            self._crash()
        self._check_alive()

    def _check_alive(self) -> None:
        if self._dead:
            raise TransportError("this process has crashed; it only does not know yet")

    @asynccontextmanager
    async def _stream(
        self, path: str, query: Mapping[str, str], idle_timeout_seconds: float | None
    ) -> AsyncIterator[Stream]:
        self._check_alive()
        faults = self._faults
        if faults.strikes("watch_refused"):
            yield self._refused_stream()
            return
        fate = next((name for name in fault_stream.FATES if faults.strikes(name)), None)
        if fate == "watch_gone" and faults.rng.random() < 0.5:
            yield _answered(refusals.expired("too old resource version"))
            return
        opened = self._inner.stream(path, query=query, idle_timeout_seconds=idle_timeout_seconds)
        async with opened as stream:
            delayed = faults.strikes("watch_delayed")
            rates = faults.rates
            yield fault_stream.FaultyStream(
                stream,
                faults,
                fate=fate,
                delay_seconds=faults.rng.uniform(0, rates.watch_delay_seconds) if delayed else 0.0,
                life_seconds=faults.rng.uniform(0, rates.watch_life_seconds),
                idle_seconds=idle_timeout_seconds,
            )

    def _refused_stream(self) -> Stream:
        match self._faults.rng.randrange(3):
            case 0:
                raise TransportError("connection refused")
            case 1:
                return _answered(_slow_down(self._faults.rng))
            case _:
                return _answered(refusals.internal_error("etcdserver: no leader"))


def _slow_down(rng: random.Random) -> ApiError:
    seconds = rng.randint(1, 5)
    message = "too many requests, please try again later"
    return refusals.refusal(429, "TooManyRequests", message, retry_after_seconds=seconds)


def _answered(error: ApiError) -> watches.Answered:
    return watches.answered(refusals.response(error))
