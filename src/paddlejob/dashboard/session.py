"""The session of one user: the connection to the cluster and the watches for open pages."""

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
"""How long jobs are watched after the last page is closed, so that a reload gets only the changes."""

MAX_STREAMS = 100
"""Maximum number of concurrent streams of a user. A browser opens six for all its pages."""
MAX_TEXTS = 8
"""Maximum number of YAML texts of a user in the queue. Each takes a megabyte and seconds of a thread."""
MAX_WATCHED = 10
"""Maximum number of watched scopes, unless all of them are being read."""


class _Watched:
    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.task = asyncio.create_task(hub.run())
        self.readers = 0


class UserSession:
    """The jobs of one user, read with the permissions of this user."""

    def __init__(self, jobs: Jobs, *, scope: str, user: str = "") -> None:
        self.jobs = jobs
        self.scope = scope
        """The namespace that the pages show first."""
        self.user = user
        """The user name in a shared dashboard, empty otherwise."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the session ends, which ends its streams."""
        self._parsing = asyncio.Lock()
        self._texts = 0
        self._watched: dict[str, _Watched] = {}
        self._streams = 0
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def is_in_use(self) -> bool:
        """Whether a page is open, or was until LINGER_SECONDS ago."""
        return bool(self._watched)

    @contextmanager
    def count_stream(self) -> Iterator[None]:
        """Count a stream against MAX_STREAMS. Raises HTTPTooManyRequests."""
        if self._streams >= MAX_STREAMS:
            raise web.HTTPTooManyRequests(reason="Too many pages are open at once; close some of them.")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    @asynccontextmanager
    async def parse_slot(self) -> AsyncIterator[None]:
        """Wait until no other YAML text of the user is being parsed. Raises HTTPTooManyRequests."""
        if self._texts >= MAX_TEXTS:
            raise web.HTTPTooManyRequests(reason="Too many manifests are being checked; try again.")
        self._texts += 1
        try:
            async with self._parsing:
                yield
        finally:
            self._texts -= 1

    def watch(self, scope: str) -> Hub:
        """Return the hub of a scope, and start it if needed."""
        if scope not in self._watched:
            if len(self._watched) >= MAX_WATCHED:
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
        # A dashboard for one user keeps the first scope ready for the next page.
        if watched is None or watched.readers or (not self.user and scope == self.scope):
            return
        del self._watched[scope]
        watched.task.cancel()
        self._ending.add(watched.task)
        watched.task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Stop the watches and end the streams. The jobs stay open."""
        if not self.over.done():
            self.over.set_result(None)
        tasks = {*self._ending, *(each.task for each in self._watched.values())}
        self._watched.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
