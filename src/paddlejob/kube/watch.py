"""The states of a watch: a pure state machine, without clock, randomness or I/O.

    Empty ──> Streaming ──(initial-events-end)──────────> Watching(rv) <──> Ready(rv)
      │            └─(the server does not stream lists)─┐      │               │
      └──────> Listing(page) ──(last page)──────────────┼──────┘               │
      ^              ^──────────────────────────────────┘                      │
      └────────────────────────(410 Gone, 404)─────────────────────────────────┘

`Empty` and `Ready` wait for a delay to pass; the other states wait for the server. A driver performs the
effects and feeds the results back into `step`. `step` guarantees:

- nothing reaches the cache before a list is complete; then the list replaces all objects atomically;
- a watch resumes from a resource version only after the list with that version is complete;
- after each step exactly one request is pending: a stream, a page or a wait.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from paddlejob.kube.backoff import Backoff

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a streamed list."""

IDLE_LIMIT_SECONDS = 70.0
"""The server sends a bookmark every minute and keeps 75 s of events. After a longer silence the connection is
dead; reconnecting at this point still avoids a new list."""

SHORT_STREAM_SECONDS = 1.0
"""A stream that ends sooner, without a new version, failed; reconnecting immediately would busy-loop."""

SILENT_STREAMS_LIMIT = 8
"""Number of silent streams, about ten minutes, after which everything is listed again. A server that was
restored from a backup sends nothing until it reaches a version that it no longer knows."""

STREAMED_LIST_TRIES = 2
BACKOFF = Backoff(first_seconds=1.0, max_seconds=30.0)
MAX_RETRY_AFTER_SECONDS = 300.0


class _State(msgspec.Struct, frozen=True):
    streams_left: int = STREAMED_LIST_TRIES
    """Remaining tries of a streamed list; at 0 lists are fetched page by page."""
    failures: int = 0
    """Failures since the last healthy stream; the exponent of the backoff."""


class Empty(_State, frozen=True):
    """Nothing is listed; waiting for a delay."""


class Streaming(_State, frozen=True):
    """Receiving a streamed list."""


class Listing(_State, frozen=True):
    """Waiting for a page of a list."""

    resource_version: str = ""
    """The version of the first page, so that the watch replays changes made during paging."""
    whole: bool = False
    """Fetch the list in one request, because its pages expired before they were all fetched."""


class Ready(_State, frozen=True):
    """The cache is complete up to a version; waiting for a delay before watching."""

    resource_version: str = ""
    silent_streams: int = 0


class Watching(_State, frozen=True):
    """A watch is open, and the cache is complete up to a version."""

    resource_version: str = ""
    silent_streams: int = 0
    """Number of consecutive streams before this one that received nothing."""
    received: bool = False
    """Whether this stream has received anything."""
    advanced: bool = False
    """Whether this stream has brought a newer version."""


State: TypeAlias = Empty | Streaming | Listing | Ready | Watching


class Line(msgspec.Struct, frozen=True):
    """An event of the stream; the payload is opaque here."""

    type: str
    resource_version: str
    payload: Any = None
    initial_events_end: bool = False


class Page(msgspec.Struct, frozen=True):
    payloads: tuple[Any, ...]
    resource_version: str
    continue_token: str = ""


class WaitOver(msgspec.Struct, frozen=True):
    """The wait is over; also the first input of the state machine."""


class Eof(msgspec.Struct, frozen=True):
    """The server closed the stream, as it does after `timeoutSeconds`."""

    open_seconds: float


class Idle(msgspec.Struct, frozen=True):
    """The stream received nothing for IDLE_LIMIT_SECONDS."""

    open_seconds: float


class Broken(msgspec.Struct, frozen=True):
    """The connection failed."""

    message: str
    open_seconds: float | None = None
    """None if the stream never opened."""


class HttpError(msgspec.Struct, frozen=True):
    """The server refused the request for a stream or a page."""

    code: int
    message: str = ""
    retry_after_seconds: float | None = None


class InStreamError(msgspec.Struct, frozen=True):
    """An ERROR event in an open stream."""

    code: int
    message: str = ""
    retry_after_seconds: float | None = None
    open_seconds: float = 0.0


Input: TypeAlias = Line | Page | WaitOver | Eof | Idle | Broken | HttpError | InStreamError


class Begin(msgspec.Struct, frozen=True):
    """Discard the staged objects; a new list begins."""


class Stage(msgspec.Struct, frozen=True):
    """Stage an object until the list is complete."""

    payload: Any


class Unstage(msgspec.Struct, frozen=True):
    """Drop a staged object, which was deleted."""

    payload: Any


class Replace(msgspec.Struct, frozen=True):
    """Replace all cached objects with the staged ones."""

    resource_version: str


class Apply(msgspec.Struct, frozen=True):
    payload: Any
    resource_version: str


class Remove(msgspec.Struct, frozen=True):
    payload: Any
    resource_version: str


class Advance(msgspec.Struct, frozen=True):
    """The cache is complete up to this version."""

    resource_version: str


class Warn(msgspec.Struct, frozen=True):
    message: str


class OpenStream(msgspec.Struct, frozen=True):
    """Open a watch from a version, or a streamed list followed by a watch if there is no version."""

    resource_version: str = ""


class FetchPage(msgspec.Struct, frozen=True):
    """Fetch a page, or the whole list."""

    continue_token: str = ""
    whole: bool = False


class Wait(msgspec.Struct, frozen=True):
    """Wait for a random time between two bounds."""

    min_seconds: float
    max_seconds: float


Request: TypeAlias = OpenStream | FetchPage | Wait
"""The driver's next operation; it closes an open stream first."""
StagingEffect: TypeAlias = Begin | Stage | Unstage
CacheEffect: TypeAlias = Apply | Remove | Advance | Replace
Effect: TypeAlias = StagingEffect | CacheEffect | Warn | Request
Step: TypeAlias = tuple[State, tuple[Effect, ...]]


def step(state: State, received: Input) -> Step:  # noqa: PLR0911  (one line for each kind of input)
    """Return the next state and the effects to perform, in order.

    Guarantees at most one Request after a Line and exactly one after any other input, always last.
    Raises ValueError for an input that the state does not accept.
    """
    match state, received:
        case Watching(), Line():
            return _on_watch_line(state, received)
        case Streaming(), Line():
            return _on_list_line(state, received)
        case Listing(), Page():
            return _on_page(state, received)
        case ((Empty() | Ready()), WaitOver()):
            return _proceed(state)
        case ((Streaming() | Watching()), (Eof() | Idle())):
            return _on_end(state, received)
        case ((Streaming() | Watching() | Listing()), Broken()):
            return _on_broken(state, received)
        case ((Streaming() | Watching()), InStreamError()):
            return _on_refusal(state, received, received.open_seconds)
        case ((Streaming() | Watching() | Listing()), HttpError()):
            return _on_refusal(state, received, None)
        case _:
            raise ValueError(f"a watch in state {type(state).__name__} cannot receive {received!r}")


def _on_watch_line(state: Watching, line: Line) -> Step:
    version = line.resource_version or state.resource_version
    advanced = state.advanced or version != state.resource_version
    current = Watching(state.streams_left, state.failures, version, received=True, advanced=advanced)
    match line.type:
        case "ADDED" | "MODIFIED":
            return current, (Apply(line.payload, version),)
        case "DELETED":
            return current, (Remove(line.payload, version),)
        case "BOOKMARK":
            return current, (Advance(version),)
        case _:
            return current, ()


def _on_list_line(state: Streaming, line: Line) -> Step:
    match line.type:
        case "ADDED" | "MODIFIED":
            return state, (Stage(line.payload),)
        case "DELETED":
            return state, (Unstage(line.payload),)
        case "BOOKMARK" if line.initial_events_end:
            complete = Watching(STREAMED_LIST_TRIES, state.failures, line.resource_version, received=True)
            return complete, (Replace(line.resource_version),)
        case "BOOKMARK":
            # A server that streams lists sends no bookmark before the one that ends the list. A bookmark
            # without the annotation means that it ignored sendInitialEvents; the list would never end.
            return _proceed(Empty(0, state.failures))
        case _:
            return state, ()


def _on_page(state: Listing, page: Page) -> Step:
    staged = tuple(Stage(payload) for payload in page.payloads)
    version = state.resource_version or page.resource_version
    if page.continue_token:
        current = Listing(state.streams_left, state.failures, version, state.whole)
        return current, (*staged, FetchPage(page.continue_token, state.whole))
    watching = Watching(state.streams_left, state.failures, version)
    return watching, (*staged, Replace(version), OpenStream(version))


def _proceed(state: Empty | Ready) -> Step:
    """Start watching or listing after a wait."""
    if isinstance(state, Ready):
        version = state.resource_version
        watching = Watching(state.streams_left, state.failures, version, state.silent_streams)
        return watching, (OpenStream(version),)
    if state.streams_left > 0:
        return Streaming(state.streams_left, state.failures), (Begin(), OpenStream())
    return Listing(0, state.failures), (Begin(), FetchPage())


def _on_end(state: Streaming | Watching, ending: Eof | Idle) -> Step:
    failures = _failures_before(state, ending.open_seconds)
    if isinstance(state, Streaming):
        unfinished = Empty(state.streams_left - 1, failures + 1)
        return _pause(unfinished, "the streamed list ended before it was complete")
    silent = 0 if state.received else state.silent_streams + 1
    if isinstance(ending, Idle) and silent >= SILENT_STREAMS_LIMIT:
        return _proceed(Empty(state.streams_left, failures))
    if isinstance(ending, Eof) and ending.open_seconds < SHORT_STREAM_SECONDS and not state.advanced:
        again = Ready(state.streams_left, failures + 1, state.resource_version, silent)
        return _pause(again, f"the watch was closed after {ending.open_seconds:.1f} s")
    # No delay: the stream ended as requested, or after a minute of silence, or a server under load cut a
    # watch that it could not serve in time.
    return _proceed(Ready(state.streams_left, failures, state.resource_version, silent))


def _on_broken(state: Streaming | Watching | Listing, ending: Broken) -> Step:
    failures = _failures_before(state, ending.open_seconds) + 1
    # A proxy that cuts every streamed list must not prevent listing forever.
    cut_short = isinstance(state, Streaming) and ending.open_seconds is not None
    return _pause(_retry_state(state, failures, streams_used=1 if cut_short else 0), ending.message)


def _on_refusal(
    state: Streaming | Watching | Listing, refusal: HttpError | InStreamError, open_seconds: float | None
) -> Step:
    failures = _failures_before(state, open_seconds)
    if refusal.code == 410:
        return _on_expiry(state, failures)
    if isinstance(state, Streaming) and refusal.code in (400, 422):
        return _proceed(Empty(0, failures))
    cut_short = isinstance(state, Streaming) and open_seconds is not None
    following = _retry_state(state, failures + 1, streams_used=1 if cut_short else 0)
    if refusal.code == 404:
        # The resource was removed with all its objects, so its versions are void.
        following = Empty(following.streams_left, following.failures)
    return _pause(following, _explain(refusal), refusal.retry_after_seconds)


def _on_expiry(state: Streaming | Watching | Listing, failures: int) -> Step:
    """List again, without delay the first time and with backoff after repeated failures."""
    if isinstance(state, Listing) and state.resource_version and not state.whole:
        return Listing(state.streams_left, failures, whole=True), (Begin(), FetchPage(whole=True))
    empty = Empty(state.streams_left, failures + 1)
    if failures == 0:
        return _proceed(empty)
    return _pause(empty, "the version to watch from expired again (410 Gone)")


def _retry_state(state: Streaming | Watching | Listing, failures: int, *, streams_used: int) -> Empty | Ready:
    """Return the state in which to wait before the next try."""
    if isinstance(state, Watching):
        silent = 0 if state.received else state.silent_streams
        return Ready(state.streams_left, failures, state.resource_version, silent)
    return Empty(max(0, state.streams_left - streams_used), failures)


def _failures_before(state: State, open_seconds: float | None) -> int:
    """Return the number of failures before this one; a healthy stream resets it."""
    was_healthy = open_seconds is not None and open_seconds >= SHORT_STREAM_SECONDS
    return 0 if was_healthy else state.failures


def _pause(state: Empty | Ready, message: str, retry_after_seconds: float | None = None) -> Step:
    return state, (Warn(message), _backoff(state.failures, retry_after_seconds))


def _backoff(failures: int, retry_after_seconds: float | None) -> Wait:
    """Return a wait that doubles with every failure and respects Retry-After."""
    ceiling = BACKOFF.base_seconds(failures)
    asked = min(retry_after_seconds or 0.0, MAX_RETRY_AFTER_SECONDS)
    min_seconds = max(asked, ceiling / 2)
    return Wait(min_seconds, min_seconds + ceiling / 2)


_ADVICE = {
    401: "the credentials are not accepted; check the token or certificate",
    403: "not allowed; grant list and watch on this resource",
    404: "the server does not know this resource; install its definition",
}


def _explain(refusal: HttpError | InStreamError) -> str:
    advice = _ADVICE.get(refusal.code, "")
    return ": ".join(part for part in (f"HTTP {refusal.code}", advice, refusal.message) if part)
