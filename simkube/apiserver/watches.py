"""Watches on an in-memory API server: event streams with bookmarks, streaming lists and an end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from paddlejob.kube.errors import ApiError, TransportTimeoutError
from paddlejob.kube.transport import Response
from simkube.apiserver import refusals, selector
from simkube.apiserver.rules.kinds import ResourceType
from simkube.apiserver.store import ADDED, DELETED, MODIFIED, Change, Record, Store

BOOKMARK_SECONDS = 60.0
"""How often a watcher that asked for bookmarks gets one."""

LAST_BOOKMARK_SECONDS = 2.0
"""How long before its end a watch gets its last bookmark."""

_MIN_TIMEOUT_SECONDS = 1800.0


class WatchOptions(msgspec.Struct, frozen=True):
    """The options of a watch request."""

    namespace: str
    matches: selector.Matches | None
    version: int | None
    """None or 0: the current objects first, then their changes."""
    initial_events: bool
    bookmarks: bool
    timeout_seconds: float | None


def parse(
    kind: ResourceType, namespace: str, query: Mapping[str, str], *, streaming_list: bool
) -> WatchOptions:
    """Read the query of a watch request.

    Raises ApiError (400, 422, 500) as the API server does.
    """
    _check_initial_events(query, streaming_list=streaming_list)
    asked = query.get("resourceVersion", "")
    if asked and not asked.isdecimal():
        why = f'resourceVersion: Invalid value: "{asked}": strconv.ParseUint: invalid syntax'
        raise refusals.refusal(500, "", why)
    timeout = query.get("timeoutSeconds", "")
    return WatchOptions(
        namespace=namespace,
        matches=selector.select(query.get("labelSelector", ""), query.get("fieldSelector", ""), kind.fields),
        version=int(asked) if asked else None,
        initial_events=_flag(query, "sendInitialEvents"),
        bookmarks=_flag(query, "allowWatchBookmarks"),
        timeout_seconds=float(timeout) if timeout.isdecimal() and int(timeout) else None,
    )


def _check_initial_events(query: Mapping[str, str], *, streaming_list: bool) -> None:
    asked, match = "sendInitialEvents" in query, query.get("resourceVersionMatch", "")
    causes = []
    if asked and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(refusals.forbidden_value("resourceVersionMatch", why))
    if asked and not streaming_list:
        why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        causes.append(refusals.forbidden_value("sendInitialEvents", why))
    if match and not asked:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(refusals.forbidden_value("resourceVersionMatch", why))
    if causes:
        raise refusals.invalid("ListOptions", "meta.k8s.io", "", causes)


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in {"1", "true"}


def error_line(error: ApiError) -> bytes:
    """Return the ERROR event of a watch."""
    return msgspec.json.encode({"type": "ERROR", "object": refusals.status_object(error)}) + b"\n"


class Watch:
    """An open watch; a `Stream` of events."""

    status = 200
    headers: Mapping[str, str] = {"content-type": "application/json"}

    def __init__(
        self,
        store: Store,
        kind: ResourceType,
        options: WatchOptions,
        *,
        rng: random.Random,
        idle_timeout_seconds: float | None,
        bookmark_seconds: float = BOOKMARK_SECONDS,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._store = store
        self._kind = kind
        self._options = options
        self._idle_seconds = idle_timeout_seconds
        self._bookmark_seconds = bookmark_seconds
        timeout = options.timeout_seconds or _MIN_TIMEOUT_SECONDS * rng.uniform(1, 2)
        self._ends_at = loop.time() + timeout
        self._bookmark_at = self._next_bookmark(loop.time())
        self._pending: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._after_version = 0
        self._begin()

    def send(self, line: bytes) -> None:
        """Give the watcher an event."""
        self._pending.append(line)
        self._wake()

    def end(self) -> None:
        """Close the stream after the pending events."""
        self._closed = True
        self._wake()

    def fail(self, error: ApiError) -> None:
        """Report an error to the watcher and close."""
        self.send(error_line(error))
        self.end()

    def stop(self) -> None:
        """Forget the watcher."""
        self._closed = True
        subscribers = self._store.table(self._kind).subscribers
        if self._offer in subscribers:
            subscribers.remove(self._offer)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield events; a chunk has all lines that are ready."""
        received_at = self._loop.time()
        while True:
            if self._pending:
                chunk = b"".join(self._pending)
                self._pending.clear()
                yield chunk
                received_at = self._loop.time()
            elif self._closed:
                return
            else:
                await self._wait(received_at)

    def _begin(self) -> None:
        """Send the initial events, and subscribe to later ones."""
        options, table = self._options, self._store.table(self._kind)
        try:
            if options.initial_events or not options.version:
                self._send_present(options)
            else:
                self._after_version = options.version
                for change in table.since(options.version):
                    self._offer(change)
        except ApiError as error:
            self.fail(error)
            return
        table.subscribers.append(self._offer)

    def _send_present(self, options: WatchOptions) -> None:
        if options.version is not None and options.version > self._store.version:
            raise refusals.version_too_large(options.version, self._store.version)
        objects = self._store.table(self._kind).objects
        for key in sorted(objects):
            record = objects[key]
            if self._selects(record):
                self._pending.append(b'{"type":"ADDED","object":%s}\n' % record.encoded())
        if options.initial_events and options.bookmarks:
            self._pending.append(self._bookmark({"k8s.io/initial-events-end": "true"}))

    def _offer(self, change: Change) -> None:
        kind = self._kind_for_me(change)
        if kind is not None and change.version > self._after_version:
            self.send(change.line(kind))

    def _kind_for_me(self, change: Change) -> str | None:
        """Return the kind of the event for this watch: an object may begin or cease to match its selector."""
        selected = change.kind != DELETED and self._selects(change.record)
        was_selected = change.previous is not None and self._selects(change.previous)
        if selected:
            return MODIFIED if was_selected else ADDED
        return DELETED if was_selected else None

    def _selects(self, record: Record) -> bool:
        options = self._options
        if options.namespace and record.body["metadata"].get("namespace") != options.namespace:
            return False
        return options.matches is None or options.matches(record.body)

    def _bookmark(self, annotations: Mapping[str, str] | None = None) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(self._store.version)}
        if annotations:
            metadata["annotations"] = annotations
        body: dict[str, Any] = {"metadata": metadata}
        return b'{"type":"BOOKMARK","object":%s}\n' % Record(self._kind, body, 0).encoded()

    async def _wait(self, received_at: float) -> None:
        """Sleep until there is an event to send, a bookmark is due, or the stream is over."""
        bookmark_at = self._bookmark_at if self._options.bookmarks else self._ends_at
        idle_at = self._ends_at if self._idle_seconds is None else received_at + self._idle_seconds
        wake_at = min(bookmark_at, self._ends_at, idle_at)
        self._waiter = self._loop.create_future()
        timer = self._loop.call_at(wake_at, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
        if not self._pending and not self._closed and self._loop.time() >= wake_at:
            self._come_due(self._loop.time(), idle_at)

    def _come_due(self, now: float, idle_at: float) -> None:
        if now >= self._ends_at:
            self.end()
        elif self._options.bookmarks and now >= self._bookmark_at:
            self._bookmark_at = self._next_bookmark(now)
            self._pending.append(self._bookmark())
        elif now >= idle_at:
            raise TransportTimeoutError(f"received nothing for {self._idle_seconds:g} s")

    def _next_bookmark(self, now: float) -> float:
        last = self._ends_at - LAST_BOOKMARK_SECONDS
        return min(now + self._bookmark_seconds, last) if now < last else self._ends_at

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Answered:
    """A stream with a complete body: an error, or a log."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.headers: Mapping[str, str] = headers or {"content-type": "application/json"}
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in one piece."""
        if self._body:
            yield self._body


def answered(response: Response) -> Answered:
    """Return a whole answer as a stream."""
    return Answered(response.status, response.body, response.headers)
