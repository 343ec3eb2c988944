"""Watches the jobs of one namespace or of all namespaces, once for all open pages of a user.

Every change has a number. A page that reconnects sends the last number it received and gets the changes since
then, or all rows if that is too long ago.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from paddlejob.api.meta import JsonObject
from paddlejob.client.errors import ClientError, sentence
from paddlejob.client.job import Job, Jobs, Listing
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
