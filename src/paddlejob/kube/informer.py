# ruff: noqa: A002  (`type` is the natural name for the requested type)
"""Keeps a cache in sync with the API server by performing the effects of `watch.step`."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar, assert_never

import msgspec

from paddlejob.api.meta import HasMeta, ObjectKey, ObjectMeta, View
from paddlejob.kube import decoding, errors, responses, watch
from paddlejob.kube.cache import Cache, Change
from paddlejob.kube.client import Client
from paddlejob.kube.crowding import Crowding, Group
from paddlejob.kube.decoding import LineSplitter
from paddlejob.kube.resource import Resource

log = logging.getLogger(__name__)

T = TypeVar("T", bound=HasMeta)
T_contra = TypeVar("T_contra", bound=HasMeta, contravariant=True)
T_co = TypeVar("T_co", bound=HasMeta, covariant=True)

PAGE_SIZE = 500
STREAM_SECONDS = (300, 600)
"""Bounds of a stream's timeoutSeconds; it is random, so that streams do not all end at the same time."""
MAX_LINE_BYTES = 32 << 20
"""Maximum size of an event. etcd stores 1.5 MB, and JSON encodes a control character in six bytes."""
CROWDED_SECONDS = 60.0
"""Minimum time between two lists because a crowded namespace has room again."""
MAX_UNDECODABLE = 1000
"""Maximum number of undecodable objects that are counted and logged."""
MAX_ERROR_LENGTH = 500
"""Maximum length of a decoder's message, which may quote the object."""

Decode = Callable[[msgspec.Raw], T | None]
"""Returns the view of an object for the cache, or None to skip the object. Raises DECODE_ERRORS."""


class OnChange(Protocol[T_contra]):
    """Called after the cache has changed: an object was added (no `old`), changed, or deleted (no `new`)."""

    def __call__(self, old: T_contra | None, new: T_contra | None, *, initial: bool) -> None:
        """Handle the change. `initial` means that the object existed when the informer started."""


class OnDecodeError(Protocol[T_co]):
    """Handles an object that does not match its type or is nested too deeply."""

    def __call__(self, encoded: msgspec.Raw, metadata: ObjectMeta, message: str) -> T_co:
        """Return a substitute for the cache; `encoded` may lack parts that are nested too deeply."""


class Informer(Generic[T]):
    """Watches the objects of one kind, filtered by namespace and selectors, into a cache.

    Guarantees: the cache always equals one version of the server's state, apart from objects of namespaces
    with too many. An object that does not decode, or a callback that fails, does not affect other objects.
    Server and network failures are retried forever.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        type: type[T],
        cache: Cache[T],
        rng: random.Random,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        on_change: OnChange[T] | None = None,
        on_decode_error: OnDecodeError[T] | None = None,
        decode: Decode[T] | None = None,
        max_in_namespace: int | None = None,
        is_retired: Callable[[T], bool] | None = None,
    ) -> None:
        """Prepare to watch.

        `decode` replaces the plain decoding into `type`. It must copy the parts of the encoded object that it
        keeps, because a Raw is a view of the whole message.
        Without `on_decode_error`, an object that does not match its type is skipped, and parts that are
        nested too deeply are ignored. With it, objects are read completely or not at all.
        Of a namespace with more than `max_in_namespace` objects, the ones that were seen first are cached.
        The others follow when some of those are deleted. Objects that are retired are counted separately.
        """
        self.resource = resource
        self.cache = cache
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._rng = rng
        self._on_change = on_change
        self._on_decode_error = on_decode_error
        decoder = msgspec.json.Decoder(type)
        self._decode_view: Decode[T] = decode or (lambda encoded: decoding.decode(decoder, encoded))
        self._state: watch.State = watch.Empty()
        self._staged: dict[ObjectKey, T | _Skipped] = {}
        self._crowding = Crowding(resource.plural, max_in_namespace, is_retired)
        self._listing_later: asyncio.TimerHandle | None = None
        self._undecodable: dict[ObjectKey, str] = {}
        """Resource versions of the objects that do not decode."""
        self._alive_at: float | None = None
        self._page_size: int | None = None
        """Set once a list was too large; after that, lists are always read in pages of this size."""
        self.synced = asyncio.Event()
        """Set when the first list, or the first list after `relist`, is complete."""
        self._must_list = False
        self._idle: asyncio.Timeout | None = None
        self.last_error = ""
        """The last error, empty while the watch is healthy."""
        self.refusal: errors.ApiError | None = None
        """The last 401 or 403, or None if the last error was another one."""
        self._streams_at_error = 0
        self.lists = 0
        """Number of complete lists."""
        self.streams = 0
        """Number of opened streams."""
        self.callback_errors = 0

    @property
    def undecodable(self) -> int:
        """Number of objects that are skipped because they do not match their type."""
        return len(self._undecodable)

    def age_seconds(self) -> float:
        """Return the time since the server last sent anything, 0 before `run`.

        In a healthy watch it stays below IDLE_LIMIT_SECONDS plus the time of a reconnect.
        """
        return 0.0 if self._alive_at is None else _now() - self._alive_at

    @property
    def trouble(self) -> str:
        """The last error, or empty if a stream was opened since; a new stream can be silent for a minute."""
        return "" if self.streams > self._streams_at_error else self.last_error

    def relist(self) -> None:
        """List everything again; a watch may lag behind recent writes, a new list does not."""
        self.synced.clear()
        self._list_again()

    def _list_again(self) -> None:
        self._listing_later = None
        self._must_list = True
        if self._idle is not None:
            self._idle.reschedule(_now())

    async def run(self) -> None:
        """Watch until cancelled."""
        self._alive_at = _now()
        request = self._begin()
        while True:
            if self._must_list:
                request = self._begin()
            match request:
                case watch.OpenStream():
                    request = await self._stream(request)
                case watch.FetchPage():
                    request = await self._page(request)
                case watch.Wait():
                    await asyncio.sleep(self._rng.uniform(request.min_seconds, request.max_seconds))
                    request = self._next_request(watch.WaitOver())
                case _:
                    assert_never(request)

    def _begin(self) -> watch.Request:
        self._must_list = False
        self._state = watch.Empty()
        return self._next_request(watch.WaitOver())

    async def _stream(self, request: watch.OpenStream) -> watch.Request:
        """Read one stream until the state machine requests something else."""
        opened_at: float | None = None
        idle = self._idle = asyncio.timeout(watch.IDLE_LIMIT_SECONDS)
        try:
            opening = self._client.watch_stream(self.resource, self._namespace, self._query(request))
            async with idle, opening as stream:
                if stream.status != 200:
                    raise await responses.error_from_stream(stream)
                self.streams += 1
                opened_at = self._alive()
                splitter = LineSplitter(MAX_LINE_BYTES)
                async for chunk in stream.chunks():
                    if self._must_list:
                        break
                    idle.reschedule(self._alive() + watch.IDLE_LIMIT_SECONDS)
                    if (following := self._read(splitter.feed(chunk), opened_at)) is not None:
                        return following
                following = self._read([splitter.finish()], opened_at)
                return following or self._next_request(watch.Eof(_now() - opened_at))
        except (TimeoutError, errors.KubeError, *decoding.DECODE_ERRORS) as error:
            if self._must_list:
                return watch.Wait(0, 0)
            return self._failed(error, None if opened_at is None else _now() - opened_at)
        finally:
            if self._idle is idle:
                self._idle = None

    def _query(self, request: watch.OpenStream) -> dict[str, str]:
        query = {
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._rng.randint(*STREAM_SECONDS)),
            "labelSelector": self._label_selector,
            "fieldSelector": self._field_selector,
            "resourceVersion": request.resource_version,
        }
        if not request.resource_version:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return {name: value for name, value in query.items() if value}

    async def _page(self, request: watch.FetchPage) -> watch.Request:
        """Fetch one page, without a resource version, so that the list is never older than the cache."""
        limit = self._page_size or (0 if request.whole else PAGE_SIZE)
        try:
            page = await self._client.list(
                self.resource,
                self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                limit=limit,
                continue_token=request.continue_token,
                type=msgspec.Raw,
            )
            payloads = tuple(self._decode(item) for item in page.items)
        except (errors.KubeError, *decoding.DECODE_ERRORS) as error:
            if isinstance(error, errors.ResponseTooLargeError):
                self._page_size = max(1, (limit or PAGE_SIZE) // 4)
            return self._failed(error, None)
        self._alive()
        metadata = page.metadata
        return self._next_request(watch.Page(payloads, metadata.resource_version, metadata.continue_token))

    def _failed(self, error: Exception, open_seconds: float | None) -> watch.Request:
        self.refusal = error if isinstance(error, errors.UnauthorizedError | errors.ForbiddenError) else None
        return self._next_request(_ending(error, open_seconds))

    def _read(self, complete_lines: Iterable[bytes], opened_at: float) -> watch.Request | None:
        """Feed lines to the state machine until it requests something other than more lines."""
        for line in complete_lines:
            if line:
                request = self._next(self._event(line, opened_at))
                if request is not None:
                    return request
        return None

    def _event(self, line: bytes, opened_at: float) -> watch.Input:
        event = decoding.decode(_EVENT_DECODER, line)
        match event.type:
            case "ADDED" | "MODIFIED":
                decoded = self._decode(event.object)
                return watch.Line(event.type, _version(decoded), decoded)
            case "DELETED":
                metadata = _metadata(event.object)
                return watch.Line(event.type, metadata.resource_version, metadata.key)
            case "BOOKMARK":
                metadata = _metadata(event.object)
                ends_list = metadata.annotations.get(watch.INITIAL_EVENTS_END) == "true"
                return watch.Line(event.type, metadata.resource_version, initial_events_end=ends_list)
            case "ERROR":
                error = errors.api_error(_STATUS_DECODER.decode(event.object))
                open_seconds = _now() - opened_at
                return watch.InStreamError(error.code, str(error), error.retry_after_seconds, open_seconds)
            case _:
                return watch.Line(event.type, "")

    def _decode(self, encoded: msgspec.Raw) -> T | _Skipped:
        try:
            if self._on_decode_error and decoding.is_too_deep(encoded):
                raise msgspec.ValidationError(f"nested more than {decoding.MAX_DEPTH} levels deep")
            view = self._decode_view(encoded)
        except decoding.DECODE_ERRORS as error:
            metadata, message = _metadata(encoded), str(error)[:MAX_ERROR_LENGTH]
            if self._on_decode_error is not None:
                return self._on_decode_error(encoded, metadata, message)
            return _Skipped(metadata.key, metadata.resource_version, message)
        if view is None:
            metadata = _metadata(encoded)
            return _Skipped(metadata.key, metadata.resource_version)
        return view

    def _next_request(self, received: watch.Input) -> watch.Request:
        """Step the state machine with an input that always leads to a request."""
        request = self._next(received)
        assert request is not None, f"the watch has no request in state {self._state!r}"
        return request

    def _next(self, received: watch.Input) -> watch.Request | None:
        """Step the state machine, perform the effects, and return its request, None for more lines."""
        self._state, effects = watch.step(self._state, received)
        request: watch.Request | None = None
        for effect in effects:
            match effect:
                case watch.OpenStream() | watch.FetchPage() | watch.Wait():
                    request = effect
                case watch.Warn():
                    self._warn(effect.message)
                case watch.Begin() | watch.Stage() | watch.Unstage():
                    self._change_staged(effect)
                case _:
                    self._change_cache(effect)
        return request

    def _change_staged(self, effect: watch.StagingEffect) -> None:
        match effect:
            case watch.Stage():
                self._stage(effect.payload)
            case watch.Unstage():
                self._unstage(effect.payload)
            case watch.Begin():
                self._staged.clear()
                self._crowding.begin_list()
            case _:
                assert_never(effect)

    def _change_cache(self, effect: watch.CacheEffect) -> None:
        match effect:
            case watch.Apply():
                self._apply(effect.payload, effect.resource_version)
            case watch.Remove():
                self._remove(effect.payload, effect.resource_version)
            case watch.Advance():
                self.cache.advance(effect.resource_version)
            case watch.Replace():
                self._replace(effect.resource_version)
            case _:
                assert_never(effect)
        if self.last_error:
            log.info("watch of %s has recovered", self.resource.plural)
            self.last_error = ""

    def _apply(self, decoded: T | _Skipped, resource_version: str) -> None:
        if isinstance(decoded, _Skipped):
            self._record_skipped(decoded)
            self._changed(self.cache.remove(decoded.key, resource_version), initial=False)
        elif decoded.metadata.key in self.cache or self._crowding.admits(self._group_of(decoded)):
            self._undecodable.pop(decoded.metadata.key, None)
            self._changed(self.cache.apply(decoded, resource_version), initial=False)
            while surplus := self._crowding.surplus(decoded.metadata.namespace):
                self._changed(self.cache.remove(surplus, resource_version), initial=False)
        else:
            self.cache.advance(resource_version)

    def _remove(self, key: ObjectKey, resource_version: str) -> None:
        self._undecodable.pop(key, None)
        self._changed(self.cache.remove(key, resource_version), initial=False)

    def _stage(self, decoded: T | _Skipped) -> None:
        key = decoded.key if isinstance(decoded, _Skipped) else decoded.metadata.key
        is_ignored = isinstance(decoded, _Skipped) and not decoded.message
        self._unstage(key)
        known = self.cache.get(key)
        group = self._group_of(decoded)
        if is_ignored or not (known or self._crowding.admits(group)):
            return
        if known is None:
            self._crowding.stage(group, 1)
        # Reuse a cached object, so that it is not in memory twice until the list is complete.
        is_same = known is not None and known.metadata.resource_version == _version(decoded)
        self._staged[key] = known if known is not None and is_same else decoded

    def _unstage(self, key: ObjectKey) -> None:
        staged = self._staged.pop(key, None)
        if staged is not None and key not in self.cache:
            self._crowding.stage(self._group_of(staged), -1)

    def _group_of(self, decoded: T | _Skipped) -> Group:
        if isinstance(decoded, _Skipped):
            return Group(decoded.key.namespace)
        return self._crowding.group_of(decoded)

    def _replace(self, resource_version: str) -> None:
        staged, self._staged = self._staged, {}
        skipped = {key: entry for key, entry in staged.items() if isinstance(entry, _Skipped)}
        self._undecodable = {key: known for key, known in self._undecodable.items() if key in skipped}
        for entry in skipped.values():
            self._record_skipped(entry)
        listed = (entry for entry in staged.values() if not isinstance(entry, _Skipped))
        self.lists += 1
        self._crowding.end_list()
        self._changed(self.cache.replace(listed, resource_version), initial=not self.synced.is_set())
        if not self._must_list:
            self.synced.set()

    def _record_skipped(self, skipped: _Skipped) -> None:
        """Log an object that does not decode, once for each version, and count it until it decodes."""
        key = skipped.key
        if not skipped.message:
            self._undecodable.pop(key, None)
            return
        if key not in self._undecodable and len(self._undecodable) >= MAX_UNDECODABLE:
            return
        is_known = self._undecodable.get(key) == skipped.resource_version
        self._undecodable[key] = skipped.resource_version
        if not is_known:
            log.warning(
                "%s %s is ignored because it does not decode: %s", self.resource.kind, key, skipped.message
            )

    def _changed(self, changes: tuple[Change[T], ...], *, initial: bool) -> None:
        self._crowding.count(changes)
        if self._listing_later is None and self._crowding.has_room:
            later = asyncio.get_running_loop().call_later
            self._listing_later = later(CROWDED_SECONDS, self._list_again)
        self._notify(changes, initial=initial)

    def _notify(self, changes: tuple[Change[T], ...], *, initial: bool) -> None:
        if self._on_change is None:
            return
        for change in changes:
            try:
                self._on_change(change.old, change.new, initial=initial)
            except Exception:
                # A failing callback must not stop the watch.
                self.callback_errors += 1
                log.exception("a callback for %s failed", self.resource.plural)

    def _warn(self, message: str) -> None:
        level = logging.DEBUG if message == self.last_error else logging.WARNING
        log.log(level, "watch of %s: %s", self.resource.plural, message)
        self.last_error = message
        self._streams_at_error = self.streams

    def _alive(self) -> float:
        self._alive_at = _now()
        return self._alive_at


class _Event(msgspec.Struct, frozen=True):
    """A watch event; the object is decoded later, depending on the event type."""

    type: str
    object: msgspec.Raw


class _MetaOnly(View, frozen=True):
    metadata: ObjectMeta


class _Identity(View, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _IdentityOnly(View, frozen=True):
    metadata: _Identity


class _Skipped(msgspec.Struct, frozen=True):
    """An object that is not cached; the message is empty unless the object does not decode."""

    key: ObjectKey
    resource_version: str
    message: str = ""


_EVENT_DECODER = msgspec.json.Decoder(_Event)
_META_DECODER = msgspec.json.Decoder(_MetaOnly)
_IDENTITY_DECODER = msgspec.json.Decoder(_IdentityOnly)
_STATUS_DECODER = msgspec.json.Decoder(errors.Status)


def _version(decoded: HasMeta | _Skipped) -> str:
    return decoded.resource_version if isinstance(decoded, _Skipped) else decoded.metadata.resource_version


def _metadata(encoded: msgspec.Raw) -> ObjectMeta:
    """Return an object's metadata, or only its identity if the rest does not decode.

    For example, a grace period of thousands of years is valid but leads to a date that Python cannot hold.
    """
    try:
        return decoding.decode(_META_DECODER, encoded).metadata
    except decoding.DECODE_ERRORS:
        found = decoding.decode(_IDENTITY_DECODER, encoded).metadata
        return ObjectMeta(found.name, found.namespace, found.uid, found.resource_version)


def _ending(error: Exception, open_seconds: float | None) -> watch.Input:
    match error:
        case errors.ApiError():
            return watch.HttpError(error.code, str(error), error.retry_after_seconds)
        case TimeoutError() | errors.TransportTimeoutError() if open_seconds is not None:
            return watch.Idle(open_seconds)
        case _:
            return watch.Broken(str(error) or "timed out", open_seconds)


def _now() -> float:
    return asyncio.get_running_loop().time()
