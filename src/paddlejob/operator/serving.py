"""The HTTP endpoints: /healthz and /readyz for the kubelet, /metrics for Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from paddlejob.kube.informer import Informer
from paddlejob.operator.state import ClusterState

WATCH_AGE_LIMIT_SECONDS = 180.0
"""A healthy watch receives a bookmark every minute; after three minutes without one it is dead."""


def stale_watches(state: ClusterState) -> list[str]:
    """Return what is wrong with the watches, a sentence each.

    A gang scheduler's kind that was never listed does not count: the jobs that wait for it say so.
    """
    gangs = (informer for informer in state.gangs.informers if informer.synced.is_set())
    return [
        f"the watch on {_name(each)} has been silent for {each.age_seconds():.0f} s{_because(each)}"
        for each in (*state.informers, *gangs)
        if each.age_seconds() > WATCH_AGE_LIMIT_SECONDS
    ]


def unsynced(state: ClusterState) -> list[str]:
    """Return what has not been listed yet, a sentence each; not what is refused of a gang scheduler."""
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


def probe(check: Callable[[], list[str]]) -> Callable[[web.Request], web.Response]:
    """Return a handler that responds with 200, or with 503 and the problems."""

    def answer(_: web.Request) -> web.Response:
        problems = check()
        return web.Response(status=503 if problems else 200, text="\n".join(problems or ["ok"]) + "\n")

    return answer


def text(render: Callable[[], bytes]) -> Callable[[web.Request], web.Response]:
    """Return a handler that responds with plain text."""

    def answer(_: web.Request) -> web.Response:
        return web.Response(body=render(), content_type="text/plain", charset="utf-8")

    return answer


@asynccontextmanager
async def serve(address: str, routes: dict[str, Callable[[web.Request], web.Response]]) -> AsyncIterator[int]:
    """Serve GET handlers on `host:port` and yield the port.

    An empty host means all addresses, port 0 with a host any free port; an empty address or `0` disables it.
    """
    host, _, port = address.rpartition(":")
    if port in ("", "0") and not host:
        yield 0
        return
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(path, _as_coroutine(handler))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or None, int(port))
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _as_coroutine(
    handler: Callable[[web.Request], web.Response],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        return handler(request)

    return handle
