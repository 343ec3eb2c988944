"""The states of a watch: a pure state machine, without clock, randomness or I/O.

    Empty ──> Streaming ──(initial-events-end)──────────> Watching(rv) <──> Ready(rv)
      │            └─(the server does not stream lists)─┐      │               │
      └──────> Listing(page) ──(last page)──────────────┼──────┘               │
      ^              ^──────────────────────────────────┘                      │
      └────────────────────────(410 Gone, 404)─────────────────────────────────┘

`Empty` and `Ready` wait for a time that has been asked for; the others wait for the server. A driver performs
the effects and feeds what happens back into `step`. What `step` guarantees is what its tests are named after:

- nothing reaches the cache before a list is complete; then it replaces everything at once;
- a resource version is resumed from only after the list that it belongs to is complete;
- after each step exactly one thing is under way: a stream, a page or a wait.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from paddlejob.kube.backoff import Backoff

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a streamed list."""

IDLE_LIMIT_SECONDS = 70.0
"""The server sends a bookmark a minute and keeps 75 s of events: a longer silence is a dead connection, and
reconnecting now still resumes without a list."""

SHORT_STREAM_SECONDS = 1.0
"""A stream that ends sooner, with nothing new, was not healthy: reconnecting at once would be a hot loop."""

SILENT_STREAMS_LIMIT = 8
"""After so many silent streams, about ten minutes, the version itself is suspect: a server whose storage was
restored from a backup sends nothing until it has caught up with a version that it no longer knows."""

STREAMED_LIST_TRIES = 2
BACKOFF = Backoff(first_seconds=1.0, max_seconds=30.0)
MAX_RETRY_AFTER_SECONDS = 300.0


class _State(msgspec.Struct, frozen=True):
    streams_left: int = STREAMED_LIST_TRIES
    """How often a streamed list may still be tried; at 0 lists are fetched page by page."""
    failures: int = 0
    """Failures since the last healthy stream; the exponent of the backoff."""


class Empty(_State, frozen=True):
    """Nothing is listed; a wait is under way."""


class Streaming(_State, frozen=True):
    """A streamed list is arriving."""


class Listing(_State, frozen=True):
    """A page of a list was asked for."""

    resource_version: str = ""
    """That of the first page: changes made while paging are then replayed by the watch."""
    whole: bool = False
    """The list is asked for in one piece, because it changes faster than its pages can be fetched."""


class Ready(_State, frozen=True):
    """The cache is complete up to a version; a wait is under way before watching goes on."""

    resource_version: str = ""
    silent_streams: int = 0


class Watching(_State, frozen=True):
    """A watch is open and the cache complete up to a version."""

    resource_version: str = ""
    silent_streams: int = 0
    """How many streams before this one received nothing at all."""
    received: bool = False
    """Whether this stream has received anything."""
    advanced: bool = False
    """Whether this stream has led to a newer version."""


State: TypeAlias = Empty | Streaming | Listing | Ready | Watching


class Line(msgspec.Struct, frozen=True):
    """An event of the stream; only the driver knows what the payload is."""

    type: str
    resource_version: str
    payload: Any = None
    initial_events_end: bool = False


class Page(msgspec.Struct, frozen=True):
    """A page of a list."""

    payloads: tuple[Any, ...]
    resource_version: str
    continue_token: str = ""


class Woke(msgspec.Struct, frozen=True):
    """The wait is over; also what starts the machine."""


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
    """None when it never opened."""


class HttpError(msgspec.Struct, frozen=True):
    """The server refused the stream or the page."""

    code: int
    message: str = ""
    retry_after_seconds: float | None = None


class InStreamError(msgspec.Struct, frozen=True):
    """An ERROR event: the server opened the stream and then gave up on it."""

    code: int
    message: str = ""
    retry_after_seconds: float | None = None
    open_seconds: float = 0.0


Input: TypeAlias = Line | Page | Woke | Eof | Idle | Broken | HttpError | InStreamError


class Begin(msgspec.Struct, frozen=True):
    """Discard what is staged: a new list begins."""


class Stage(msgspec.Struct, frozen=True):
    """Keep an object aside until the list is complete."""

    payload: Any


class Unstage(msgspec.Struct, frozen=True):
    """An object of the list in progress was deleted."""

    payload: Any


class Replace(msgspec.Struct, frozen=True):
    """Replace everything by what is staged, at once."""

    resource_version: str


class Apply(msgspec.Struct, frozen=True):
    """Store one object."""

    payload: Any
    resource_version: str


class Remove(msgspec.Struct, frozen=True):
    """Drop one object."""

    payload: Any
    resource_version: str


class Advance(msgspec.Struct, frozen=True):
    """The cache is complete up to this version."""

    resource_version: str


class Warn(msgspec.Struct, frozen=True):
    """Log a warning."""

    message: str


class OpenStream(msgspec.Struct, frozen=True):
    """Open a stream: a watch from a version, or a streamed list and then a watch when there is none."""

    resource_version: str = ""


class FetchPage(msgspec.Struct, frozen=True):
    """Fetch a page, or the whole list."""

    continue_token: str = ""
    whole: bool = False


class Wait(msgspec.Struct, frozen=True):
    """Wait for a random time between two bounds."""

    at_least_seconds: float
    at_most_seconds: float


Request: TypeAlias = OpenStream | FetchPage | Wait
"""What the driver does next; it closes an open stream first."""
StagingEffect: TypeAlias = Begin | Stage | Unstage
CacheEffect: TypeAlias = Apply | Remove | Advance | Replace
Effect: TypeAlias = StagingEffect | CacheEffect | Warn | Request
Step: TypeAlias = tuple[State, tuple[Effect, ...]]


def step(state: State, received: Input) -> Step:  # noqa: PLR0911  (one line for each kind of input)
    """Return the next state and what the driver has to do, in order.

    Guarantees: after a Line at most one Request, after any other input exactly one, and always last.
    Raises ValueError for an input that the state cannot receive.
    """
    match state, received:
        case Watching(), Line():
            return _watched(state, received)
        case Streaming(), Line():
            return _streamed(state, received)
        case Listing(), Page():
            return _listed(state, received)
        case ((Empty() | Ready()), Woke()):
            return _proceed(state)
        case ((Streaming() | Watching()), (Eof() | Idle())):
            return _ended(state, received)
        case ((Streaming() | Watching() | Listing()), Broken()):
            return _broken(state, received)
        case ((Streaming() | Watching()), InStreamError()):
            return _refused(state, received, received.open_seconds)
        case ((Streaming() | Watching() | Listing()), HttpError()):
            return _refused(state, received, None)
        case _:
            raise ValueError(f"a watch in state {type(state).__name__} cannot receive {received!r}")


def _watched(state: Watching, line: Line) -> Step:
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


def _streamed(state: Streaming, line: Line) -> Step:
    match line.type:
        case "ADDED" | "MODIFIED":
            return state, (Stage(line.payload),)
        case "DELETED":
            return state, (Unstage(line.payload),)
        case "BOOKMARK" if line.initial_events_end:
            complete = Watching(STREAMED_LIST_TRIES, state.failures, line.resource_version, received=True)
            return complete, (Replace(line.resource_version),)
        case "BOOKMARK":
            # A server that streams lists sends no other bookmark before the one that ends the list, so this
            # one has overlooked the question and the end would never come.
            return _proceed(Empty(0, state.failures))
        case _:
            return state, ()


def _listed(state: Listing, page: Page) -> Step:
    staged = tuple(Stage(payload) for payload in page.payloads)
    version = state.resource_version or page.resource_version
    if page.continue_token:
        current = Listing(state.streams_left, state.failures, version, state.whole)
        return current, (*staged, FetchPage(page.continue_token, state.whole))
    watching = Watching(state.streams_left, state.failures, version)
    return watching, (*staged, Replace(version), OpenStream(version))


def _proceed(state: Empty | Ready) -> Step:
    """Do what the state has been waiting to do."""
    if isinstance(state, Ready):
        version = state.resource_version
        watching = Watching(state.streams_left, state.failures, version, state.silent_streams)
        return watching, (OpenStream(version),)
    if state.streams_left > 0:
        return Streaming(state.streams_left, state.failures), (Begin(), OpenStream())
    return Listing(0, state.failures), (Begin(), FetchPage())


def _ended(state: Streaming | Watching, ending: Eof | Idle) -> Step:
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
    # The end that was asked for, a silence that has cost a minute already, or a server under load, which ends
    # watches that it cannot feed in time, after a part of what has changed: no reason to wait.
    return _proceed(Ready(state.streams_left, failures, state.resource_version, silent))


def _broken(state: Streaming | Watching | Listing, ending: Broken) -> Step:
    failures = _failures_before(state, ending.open_seconds) + 1
    # A middle box that cuts every streamed list must not keep us from ever listing.
    cut_short = isinstance(state, Streaming) and ending.open_seconds is not None
    return _pause(_resting(state, failures, streams_used=1 if cut_short else 0), ending.message)


def _refused(
    state: Streaming | Watching | Listing, refusal: HttpError | InStreamError, open_seconds: float | None
) -> Step:
    failures = _failures_before(state, open_seconds)
    if refusal.code == 410:
        return _expired(state, failures)
    if isinstance(state, Streaming) and refusal.code in (400, 422):
        return _proceed(Empty(0, failures))
    cut_short = isinstance(state, Streaming) and open_seconds is not None
    rest = _resting(state, failures + 1, streams_used=1 if cut_short else 0)
    if refusal.code == 404:
        # The resource itself is gone, and its objects with it: when it is back, its past is not.
        rest = Empty(rest.streams_left, rest.failures)
    return _pause(rest, _explain(refusal), refusal.retry_after_seconds)


def _expired(state: Streaming | Watching | Listing, failures: int) -> Step:
    """List again: at once when it happens now and then, with backoff when it happens again and again."""
    if isinstance(state, Listing) and state.resource_version and not state.whole:
        return Listing(state.streams_left, failures, whole=True), (Begin(), FetchPage(whole=True))
    empty = Empty(state.streams_left, failures + 1)
    if failures == 0:
        return _proceed(empty)
    return _pause(empty, "the version to watch from expired again (410 Gone)")


def _resting(state: Streaming | Watching | Listing, failures: int, *, streams_used: int) -> Empty | Ready:
    """Return the state to wait in before what failed is tried again."""
    if isinstance(state, Watching):
        silent = 0 if state.received else state.silent_streams
        return Ready(state.streams_left, failures, state.resource_version, silent)
    return Empty(max(0, state.streams_left - streams_used), failures)


def _failures_before(state: State, open_seconds: float | None) -> int:
    """Return how many failures preceded this ending; a stream that lived has made up for all of them."""
    lived = open_seconds is not None and open_seconds >= SHORT_STREAM_SECONDS
    return 0 if lived else state.failures


def _pause(state: Empty | Ready, message: str, retry_after_seconds: float | None = None) -> Step:
    return state, (Warn(message), _backoff(state.failures, retry_after_seconds))


def _backoff(failures: int, retry_after_seconds: float | None) -> Wait:
    """Return a wait that doubles with every failure, and is never shorter than the server asked for."""
    ceiling = BACKOFF.base_seconds(failures)
    asked = min(retry_after_seconds or 0.0, MAX_RETRY_AFTER_SECONDS)
    at_least = max(asked, ceiling / 2)
    return Wait(at_least, at_least + ceiling / 2)


_ADVICE = {
    401: "the credentials are not accepted; check the token or certificate",
    403: "not allowed; grant list and watch on this resource",
    404: "the server does not know this resource; install its definition",
}


def _explain(refusal: HttpError | InStreamError) -> str:
    advice = _ADVICE.get(refusal.code, "")
    return ": ".join(part for part in (f"HTTP {refusal.code}", advice, refusal.message) if part)
