"""What one user works with: their own connection to the cluster, and what is watched for their pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager

from aiohttp import web

from paddlejob.client.job import Jobs
from paddlejob.client.live import within
from paddlejob.dashboard.hub import Hub
from paddlejob.dashboard.sse import Message

ALL = ""
"""The scope of all namespaces; any other is the name of one."""
LINGER_SECONDS = 30.0
"""How long jobs are still watched after the last page has gone: a reload then gets only what it missed."""

MOST_STREAMS = 100
"""How many streams a user may read at once: a browser opens six, whatever the number of its pages."""
MAX_TEXTS = 8
"""YAML texts of a user that are parsed or wait for it; each takes a megabyte and seconds of a thread."""
MOST_WATCHED = 10
"""How many scopes are watched at once; more only where all of them are read."""


class _Watched:
    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.task = asyncio.create_task(hub.run())
        self.readers = 0


class Desk:
    """The jobs of one user, seen with the rights of that user and nobody else's."""

    def __init__(self, jobs: Jobs, *, scope: str, user: str = "") -> None:
        self.jobs = jobs
        self.scope = scope
        """What is shown first."""
        self.user = user
        """Whom the API server takes the user for, where that is of interest."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the user may see nothing any longer: what is being sent ends."""
        self._parsing = asyncio.Lock()
        self._texts = 0
        self._watched: dict[str, _Watched] = {}
        self._streams = 0
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def is_in_use(self) -> bool:
        """Whether anything is watched, for a page that is open or was so a moment ago."""
        return bool(self._watched)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count a stream while it is read. Raises HTTPTooManyRequests."""
        if self._streams >= MOST_STREAMS:
            raise web.HTTPTooManyRequests(reason="Too many pages are open at once; close some of them.")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    @asynccontextmanager
    async def parsing(self) -> AsyncIterator[None]:
        """Let one YAML text of the user be parsed at a time. Raises HTTPTooManyRequests."""
        if self._texts >= MAX_TEXTS:
            raise web.HTTPTooManyRequests(reason="Too many manifests are being checked; try again.")
        self._texts += 1
        try:
            async with self._parsing:
                yield
        finally:
            self._texts -= 1

    def watch(self, scope: str) -> Hub:
        """Return the jobs of a scope, watched from now on."""
        if scope not in self._watched:
            if len(self._watched) >= MOST_WATCHED:
                for each in list(self._watched):
                    self._end_unread(each)
            jobs = self.jobs if scope == ALL else within(self.jobs, scope)
            self._watched[scope] = _Watched(Hub(jobs, all_namespaces=scope == ALL))
        return self._watched[scope].hub

    async def stream(self, scope: str, last_id: str) -> AsyncGenerator[Message, None]:
        """Yield the jobs of a scope and their changes; see Hub.stream."""
        hub, watched = self.watch(scope), self._watched[scope]
        watched.readers += 1
        try:
            async with aclosing(hub.stream(last_id)) as messages:
                async for message in messages:
                    yield message
        finally:
            watched.readers -= 1
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._end_unread, scope)

    def _end_unread(self, scope: str) -> None:
        watched = self._watched.get(scope)
        # What is shown first stays ready for the next page of a user who is alone.
        if watched is None or watched.readers or (not self.user and scope == self.scope):
            return
        del self._watched[scope]
        watched.task.cancel()
        self._ending.add(watched.task)
        watched.task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Stop watching and end what is being sent; the jobs are still open."""
        if not self.over.done():
            self.over.set_result(None)
        tasks = {*self._ending, *(each.task for each in self._watched.values())}
        self._watched.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
