"""Single requests and events between operators and an API server, and a fault for each."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from paddlejob.kube.errors import TransportError
from paddlejob.kube.resource import LEASES
from paddlejob.kube.transport import Response, Stream, Transport
from simkube.apiserver import refusals, watches
from simkube.apiserver.server import ApiServer

LATE_SECONDS = 20.0
BEHIND_SECONDS = 30.0
"""Longer than it takes to take over."""
OUTAGE_SECONDS = 60.0
LEASE = "operator"
UNCOUNTED = ("/leases", f"/leases/{LEASE}", "/apis/scheduling.volcano.sh/v1beta1")
"""Periodic requests, independent of the job."""


class Fault(enum.StrEnum):
    """A single fault."""

    CRASH_BEFORE = "crash before a request"
    CRASH_AFTER = "crash after a request"
    NOT_SENT = "a request that is not sent"
    NO_ANSWER = "a request whose response is lost"
    OLD_READ = "a stale read"
    SENT_TWICE = "a write that arrives twice"
    CONFLICT = "a write that conflicts with someone else's"
    OUTAGE = "no network from a request on: another operator takes over"
    LATE_STANDBY = "the same, and the other operator's watch of pods is behind"
    OLD_LISTS = "crash before a request, and the next operator's lists are stale"
    LEASE_MOVES = "the lease is given to another operator at a request"
    LEASE_MOVES_ON = "the same, and back again at each write that follows"
    EVENT_LATE = "an event that comes late"
    EVENT_TWICE = "an event that comes twice"
    EVENT_MISSED = "an event that is missed when the watch is reopened"
    REPORT_LOST = "a report of a supervisor that is lost"
    REPORT_AGAIN = "a report of a supervisor that arrives again later"
    ORDER_LOST = "an order to a supervisor that is lost"

    @property
    def needs_standby(self) -> bool:
        """Whether there are two operators, which share a lease."""
        return self in (Fault.OUTAGE, Fault.LATE_STANDBY) or self.moves_lease

    @property
    def moves_lease(self) -> bool:
        """Whether both operators work, and each may be struck."""
        return self in (Fault.LEASE_MOVES, Fault.LEASE_MOVES_ON)

    @property
    def is_about_events(self) -> bool:
        """Whether it affects watch events."""
        return self in (Fault.EVENT_LATE, Fault.EVENT_TWICE, Fault.EVENT_MISSED)

    @property
    def is_about_supervisors(self) -> bool:
        """Whether it affects the requests of supervisors to the operator."""
        return self in (Fault.REPORT_LOST, Fault.REPORT_AGAIN, Fault.ORDER_LOST)


class Wire:
    """Counts requests and events between the operators and the server, and applies one fault."""

    def __init__(self, server: ApiServer, fault: Fault | None = None, number: int = -1) -> None:
        self.server = server
        self.requests = self.events = self.reports = 0
        self.struck = False
        self.crash: Callable[[], object] = lambda: None
        self.is_down = False
        self.identities: dict[str, str] = {}
        """By which name each operator that lives stands for election."""
        self._fault = fault
        self._number = number

    def request_fault(self, method: str) -> Fault | None:
        """Count a request, and return its fault, if any."""
        number, fault = self.requests, self._fault
        self.requests += 1
        if fault is None or self._number < 0 or not _applies(fault, method):
            return None
        goes_on = fault is Fault.LEASE_MOVES_ON and number > self._number and method != "GET"
        if number != self._number and not goes_on:
            return None
        if fault.moves_lease:
            self._move_lease()
        else:
            self.struck = True
        return fault

    def _move_lease(self) -> None:
        """Write another name into the lease: two operators work until the first one reads it."""
        lease = self.server.get(LEASES, "default", LEASE)
        holder = lease["spec"]["holderIdentity"] if lease else ""
        others = [identity for identity in self.identities.values() if identity != holder]
        if holder in self.identities.values() and others:
            self.server.patch(LEASES, "default", LEASE, {"spec": {"holderIdentity": others[0]}})
            self.struck = True

    def event_fault(self) -> Fault | None:
        """Count an event, and return its fault, if any."""
        number, self.events = self.events, self.events + 1
        if self._fault is None or not self._fault.is_about_events or number != self._number:
            return None
        self.struck = True
        return self._fault

    def report_fault(self) -> Fault | None:
        """Count a request of a supervisor, and return its fault, if any."""
        number, self.reports = self.reports, self.reports + 1
        if self._fault is None or not self._fault.is_about_supervisors or number != self._number:
            return None
        self.struck = True
        return self._fault

    def calls(self, fault: Fault) -> int:
        """Return how many calls there were that the fault can affect."""
        if fault.is_about_supervisors:
            return self.reports
        return self.events if fault.is_about_events else self.requests


def _applies(fault: Fault, method: str) -> bool:
    if fault.is_about_events or fault.is_about_supervisors:
        return False
    match fault:
        case Fault.SENT_TWICE:
            return method != "GET"
        case Fault.CONFLICT:
            return method in ("PUT", "PATCH")
        case Fault.OLD_READ:
            return method == "GET"
    return True


class WiredTransport:
    """A `Transport` of one life of an operator."""

    def __init__(
        self, wire: Wire, identity: str, *, is_struck: bool, is_behind: bool, reads_old: bool
    ) -> None:
        self._wire = wire
        self._inner: Transport = wire.server.transport(identity, latency_seconds=(0.001, 0.05))
        self._is_struck = is_struck
        """Whether the fault may strike here; the second operator is left alone."""
        self._is_behind = is_behind
        self._reads_old = reads_old
        self._is_dead = False

    def kill(self) -> None:
        """Fail every request from now on."""
        self._is_dead = True

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, **options: Any
    ) -> Response:
        """Send one request, unless it is the one."""
        self._check()
        counts = self._is_struck and not path.endswith(UNCOUNTED)
        fault = self._wire.request_fault(method) if counts else None

        async def send() -> Response:
            return await self._inner.request(method, path, query=query, **options)

        match fault:
            case Fault.CRASH_BEFORE | Fault.OLD_LISTS:
                self._die()
            case Fault.CRASH_AFTER:
                await send()
                self._die()
            case Fault.NOT_SENT:
                raise TransportError("connection refused")
            case Fault.NO_ANSWER:
                await send()
                raise TransportError("connection reset before the answer")
            case Fault.SENT_TWICE:
                await send()
            case Fault.CONFLICT:
                error = refusals.refusal(409, "Conflict", "the object has been modified")
                return refusals.response(error)
            case Fault.OUTAGE | Fault.LATE_STANDBY:
                self._wire.is_down = True
                asyncio.get_running_loop().call_later(OUTAGE_SECONDS, setattr, self._wire, "is_down", False)
                raise TransportError("network is unreachable")
        response = await send()
        if fault is Fault.OLD_READ or (self._reads_old and method == "GET" and counts):
            await asyncio.sleep(LATE_SECONDS)
        self._check()
        return response

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, idle_timeout_seconds: float | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        """Open a watch."""
        return self._stream(path, query or {}, idle_timeout_seconds)

    @asynccontextmanager
    async def _stream(
        self, path: str, query: Mapping[str, str], idle_seconds: float | None
    ) -> AsyncIterator[Stream]:
        self._check()
        async with self._inner.stream(path, query=query, idle_timeout_seconds=idle_seconds) as opened:
            is_late = self._is_behind and path.endswith("/pods") and opened.status == 200
            late = BEHIND_SECONDS if is_late else 0.0
            yield _WiredStream(opened, self._wire if self._is_struck else None, self._check, late)

    async def close(self) -> None:
        """Close the wrapped transport."""
        await self._inner.close()

    def _die(self) -> None:
        self._is_dead = True
        self._wire.crash()
        self._check()

    def _check(self) -> None:
        if self._is_dead or (self._is_struck and self._wire.is_down):
            raise TransportError("network is unreachable")


class _WiredStream:
    """A watch with a fault at one event."""

    def __init__(self, inner: Stream, wire: Wire | None, check: Callable[[], None], late: float) -> None:
        self.status, self.headers = inner.status, inner.headers
        self._inner = inner
        self._wire = wire
        self._check = check
        self._late_seconds = late

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the received events one by one."""
        async for chunk in self._inner.chunks():
            await asyncio.sleep(self._late_seconds)
            self._check()
            for line in chunk.splitlines(keepends=True):
                is_event = self.status == 200 and b'"BOOKMARK"' not in line
                match self._wire.event_fault() if self._wire and is_event else None:
                    case Fault.EVENT_LATE:
                        await asyncio.sleep(LATE_SECONDS)
                    case Fault.EVENT_TWICE:
                        yield line
                    case Fault.EVENT_MISSED:
                        yield watches.error_line(refusals.expired("too old resource version"))
                        return
                yield line
