"""The session of one user: the connection to the cluster, and hubs that send its jobs to open pages."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import NamedTuple

from aiohttp import web

from paddlejob.api.meta import JsonObject
from paddlejob.client.errors import ClientError, sentence
from paddlejob.client.job import Job, Jobs, Listing
from paddlejob.client.live import within
from paddlejob.dashboard.rows import key_of, row_of
from paddlejob.dashboard.sse import Message
from paddlejob.kube.errors import ForbiddenError, KubeError, UnauthorizedError

log = logging.getLogger(__name__)

KEPT_CHANGES = 1000
BATCH_SECONDS = 0.1
RETRY_SECONDS = 3.0


class _Change(NamedTuple):
    number: int
    rows: tuple[JsonObject, ...]
    gone: tuple[str, ...]


class Hub:
    """Keeps the rows of all jobs and sends changes to every page."""

    def __init__(self, jobs: Jobs, *, all_namespaces: bool = False) -> None:
        self._source = jobs
        self._all_namespaces = all_namespaces
        self._jobs: dict[str, Job] = {}
        self._rows: dict[str, JsonObject] = {}
        self._changes: deque[_Change] = deque(maxlen=KEPT_CHANGES)
        self._number = 0
        self._epoch = secrets.token_hex(4)
        """Change numbers are only valid within this process."""
        self._state: JsonObject = {"state": "loading", "message": ""}
        self._waiting: set[asyncio.Event] = set()

    async def run(self) -> None:
        """Watch the jobs until cancelled. Pages show errors, and the watch is retried."""
        while True:
            try:
                async with aclosing(self._source.listings(all_namespaces=self._all_namespaces)) as listings:
                    async for listing in listings:
                        self._update(listing)
                        await asyncio.sleep(BATCH_SECONDS)
            except (ClientError, KubeError) as error:
                denied = isinstance(error, ForbiddenError | UnauthorizedError)
                if denied:
                    # The user lost the permission; remove the rows.
                    self._update(Listing(()))
                self._set_state("forbidden" if denied else "disconnected", sentence(error))
            except Exception as error:
                log.exception("bug in the dashboard; the jobs are listed again")
                self._set_state("disconnected", f"bug in the dashboard: {type(error).__name__}: {error}")
            await asyncio.sleep(RETRY_SECONDS)

    async def stream(self, last_id: str = "") -> AsyncGenerator[Message, None]:
        """Yield all rows or the changes after `last_id`, then every further change."""
        woken = asyncio.Event()
        self._waiting.add(woken)
        try:
            state: JsonObject | None = None
            seen = self._last_seen(last_id)
            while True:
                woken.clear()
                if state is not self._state:
                    state = self._state
                    yield Message("state", state)
                if state["state"] == "loading":
                    pass
                elif seen is None:
                    seen = self._number
                    yield Message("all", list(self._rows.values()), self._id(seen))
                elif seen < self._number:
                    change = self._changes_since(seen)
                    seen = self._number
                    yield Message("change", change, self._id(seen))
                await woken.wait()
        finally:
            self._waiting.discard(woken)

    def _id(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    def _last_seen(self, last_id: str) -> int | None:
        """Return the number of the last change a page has, None if it needs all rows."""
        epoch, _, number = last_id.partition("-")
        if epoch != self._epoch or not number.isdecimal():
            return None
        oldest = self._changes[0].number if self._changes else self._number + 1
        return int(number) if oldest - 1 <= int(number) <= self._number else None

    def _changes_since(self, seen: int) -> JsonObject:
        changed: dict[str, None] = {}
        gone: dict[str, None] = {}
        for change in self._changes:
            if change.number > seen:
                changed |= dict.fromkeys(row["key"] for row in change.rows)
                gone |= dict.fromkeys(change.gone)
        return {
            "rows": [self._rows[key] for key in changed if key in self._rows],
            "gone": [key for key in gone if key not in self._rows],
        }

    def _update(self, listing: Listing) -> None:
        jobs = {key_of(job): job for job in listing.jobs}
        fresh = {key: row_of(job) for key, job in jobs.items() if self._jobs.get(key) is not job}
        rows = tuple(row for key, row in fresh.items() if self._rows.get(key) != row)
        gone = tuple(self._jobs.keys() - jobs.keys())
        self._jobs = jobs
        for key in gone:
            del self._rows[key]
        self._rows |= fresh
        if rows or gone:
            self._number += 1
            self._changes.append(_Change(self._number, rows, gone))
        self._set_state("disconnected" if listing.trouble else "live", listing.trouble)

    def _set_state(self, state: str, message: str) -> None:
        published = {"state": state, "message": message}
        if published != self._state:
            self._state = published
        for each in self._waiting:
            each.set()


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
