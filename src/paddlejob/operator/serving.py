"""The HTTP endpoints: /healthz and /readyz for the kubelet, /metrics for Prometheus."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from paddlejob.kube.informer import Informer
from paddlejob.operator.ports import server
from paddlejob.operator.ports.http import Endpoint, Handler, Request, Response
from paddlejob.operator.ports.server import Limits
from paddlejob.operator.state import ClusterState

T = TypeVar("T")

LIMITS = Limits(connections=64, per_source=8)
"""Enough for a kubelet, a few Prometheus servers and manual requests; one request per connection."""
SNAPSHOT_SECONDS = 1.0
MIN_PAUSE_RATIO = 20
"""Rendering takes at most 1/20 of the main loop's time, however many requests arrive."""
MAIN_LOOP_SECONDS = 2.0
"""Less than the timeout of the probes, so that the kubelet shows the message."""

WATCH_AGE_LIMIT_SECONDS = 180.0
"""A healthy watch receives a bookmark every minute; after three minutes without one it is dead."""


def stale_watches(state: ClusterState) -> list[str]:
    """Return one sentence for each watch that is stale.

    Gang kinds that were never listed are left out: the jobs that wait for them report it.
    """
    gangs = (informer for informer in state.gangs.informers if informer.synced.is_set())
    return [
        f"the watch on {_name(each)} has been silent for {each.age_seconds():.0f} s{_because(each)}"
        for each in (*state.informers, *gangs)
        if each.age_seconds() > WATCH_AGE_LIMIT_SECONDS
    ]


def unsynced_kinds(state: ClusterState) -> list[str]:
    """Return one sentence for each kind that has not been listed yet, except forbidden gang kinds."""
    gangs = (informer for informer in state.gangs.informers if not informer.last_error)
    return [
        f"{_name(informer)} have not been listed yet{_because(informer)}"
        for informer in (*state.informers, *gangs)
        if not informer.synced.is_set()
    ]


def _name(informer: Informer[Any]) -> str:
    resource = informer.resource
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _because(informer: Informer[Any]) -> str:
    return f": {informer.last_error}" if informer.last_error else ""


class Snapshot(Generic[T]):
    """A value that the main loop computes for the ports; concurrent requests share it."""

    def __init__(self, compute: Callable[[], T]) -> None:
        self._loop = asyncio.get_running_loop()
        self._compute = compute
        self._latest: concurrent.futures.Future[T] | None = None
        self._fresh_until = -math.inf

    async def read(self) -> T:
        """Return the value. Raises TimeoutError when the main loop does not respond."""
        if self._latest is None or (self._latest.done() and time.monotonic() >= self._fresh_until):
            self._latest = asyncio.run_coroutine_threadsafe(self._take(), self._loop)
        async with asyncio.timeout(MAIN_LOOP_SECONDS):
            return await asyncio.shield(asyncio.wrap_future(self._latest))

    async def _take(self) -> T:
        began = time.monotonic()
        try:
            return self._compute()
        finally:
            seconds = time.monotonic() - began
            self._fresh_until = began + max(SNAPSHOT_SECONDS, MIN_PAUSE_RATIO * seconds)


def probe(check: Callable[[], list[str]]) -> Handler:
    """Return a handler that responds with 200, or with 503 and the problems.

    The check runs on the main loop, so a blocked loop is reported too.
    """
    snapshot = Snapshot(check)

    async def respond(_: Request) -> Response:
        try:
            problems = await snapshot.read()
        except TimeoutError:
            problems = [f"the event loop of the operator has not responded within {MAIN_LOOP_SECONDS:g} s"]
        return Response(503 if problems else 200, ("\n".join(problems or ["ok"]) + "\n").encode())

    return respond


def text(render: Callable[[], bytes]) -> Handler:
    """Return a handler that responds with text rendered on the main loop."""
    snapshot = Snapshot(render)

    async def respond(_: Request) -> Response:
        try:
            return Response(200, await snapshot.read())
        except TimeoutError:
            return Response(503, b"the operator is busy\n")

    return respond


@asynccontextmanager
async def serve(address: str, handlers: dict[str, Handler]) -> AsyncIterator[int]:
    """Serve GET handlers by path on `host:port` and yield the port.

    An empty host means all addresses, port 0 with a host any free port; an empty address or `0` disables it.
    """
    host, _, port = address.rpartition(":")
    if port in ("", "0") and not host:
        yield 0
        return
    endpoints = [Endpoint("GET", path, handler) for path, handler in handlers.items()]
    async with server.serve(address, endpoints, LIMITS) as opened:
        yield opened
