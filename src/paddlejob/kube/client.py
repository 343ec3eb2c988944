# ruff: noqa: A002  (`type` is the natural name for the requested type)
"""The API server's verbs as typed coroutines.

A `Client` encodes requests, decodes responses, raises typed errors, and retries only safe requests: those
that the server rejected with 429, or with 503 and a Retry-After, and reads without a response.
A write with an unknown outcome raises TransportError; the caller must read the object before it retries.
"""

from __future__ import annotations

import asyncio
import copy
import enum
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from paddlejob.api import meta
from paddlejob.kube import errors, responses
from paddlejob.kube.backoff import RetryPolicy
from paddlejob.kube.resource import PODS, Resource
from paddlejob.kube.responses import ListOf, Written
from paddlejob.kube.transport import Response, Stream, Transport, WebSocket, WebSocketTransport

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    T = TypeVarWithDefault("T", default=meta.JsonObject)
    W = TypeVarWithDefault("W", default=Written)
else:
    T = TypeVar("T")
    W = TypeVar("W")


import math
from datetime import MAXYEAR, MINYEAR, UTC
from email.utils import parsedate_to_datetime

_RESOLUTION_SECONDS = 1.0


class ServerClock:
    """Estimates the API server's clock from the `Date` header of its responses.

    The server writes a `Date`, in whole seconds, between our request and its response. So each response
    bounds the server's time from both sides, and several responses narrow the bounds. Slow responses only
    give wide bounds; nothing is averaged. The bounds are relative to the event loop's monotonic clock, so
    neither a wrong local date nor a change of it matters. A response costs one string comparison.
    """

    def __init__(self) -> None:
        self._low, self._high = -math.inf, math.inf
        self._date = ""
        self._server_time = 0.0

    def now(self, seconds: float) -> datetime | None:
        """Return the server's time at a monotonic time, to within about a second; None if unknown."""
        if not math.isfinite(self._low):
            return None
        return datetime.fromtimestamp(seconds + (self._low + self._high) / 2, UTC)

    def observe(self, date: str, sent: float, received: float) -> None:
        """Add the `Date` of a response, with the monotonic times of the request and the response."""
        if date != self._date:
            try:
                moment = parsedate_to_datetime(date)
            except ValueError:
                return
            if not MINYEAR < moment.year < MAXYEAR:
                return
            self._server_time, self._date = moment.timestamp(), date
        low = self._server_time - received
        high = self._server_time + _RESOLUTION_SECONDS - sent
        if low > self._high or high < self._low:
            # The server's clock was set or has drifted, so the old bounds are invalid.
            self._low, self._high = low, high
        else:
            self._low, self._high = max(low, self._low), min(high, self._high)


class PatchType(enum.Enum):
    """The format of a patch, by its content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"
    STRATEGIC = "application/strategic-merge-patch+json"


class RequestRecord(msgspec.Struct, frozen=True):
    """One request for the metrics; a retried request has one record for each try."""

    verb: str
    """The RBAC verb: get, list, watch, create, update, patch, delete."""
    resource: str
    """The plural with the subresource, such as pods or paddlejobs/status."""
    code: int
    """The HTTP status code, or 0 without a response."""
    seconds: float


class ServerVersion(meta.View, frozen=True):
    major: str = ""
    minor: str = ""
    git_version: str = ""


class Client:
    """Typed access to an API server, safe for concurrent use."""

    def __init__(
        self,
        transport: Transport,
        *,
        observe: Callable[[RequestRecord], None] | None = None,
        retry_policy: RetryPolicy | None = None,
        rng: random.Random | None = None,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._transport = transport
        self._observe = observe
        self._retry_policy = retry_policy or RetryPolicy()
        self._rng = rng or random.Random()  # noqa: S311  (jitter, not security)
        self._timeout_seconds = timeout_seconds
        self._server_clock = ServerClock()
        self._may_write: Callable[[], bool] = _always

    def with_fence(self, may_write: Callable[[], bool]) -> Client:
        """Return a client on the same connections that writes only while `may_write` returns True.

        `may_write` is called before every try, so neither a retry nor a process that was suspended can write
        after its lease has expired. Other writes raise NotLeaderError.
        """
        client = copy.copy(self)
        client._may_write = may_write  # noqa: SLF001
        return client

    def without_retries(self) -> Client:
        """Return a client on the same connections that sends each request once."""
        client = copy.copy(self)
        client._retry_policy = RetryPolicy(max_tries=1)  # noqa: SLF001
        return client

    @property
    def may_write(self) -> bool:
        """Whether a write would be sent now."""
        return self._may_write()

    def server_now(self) -> datetime | None:
        """Return the API server's time to within about a second, or None before its first response.

        Compare timestamps set by the server with this time, not with the local clock.
        """
        return self._server_clock.now(asyncio.get_running_loop().time())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()

    async def get(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        subresource: str | None = None,
        type: type[T] | None = None,
    ) -> T:
        """Return one object, as `type` or as plain JSON."""
        path = resource.path(namespace, name, subresource)
        body = await self._send(_Call("get", _label(resource, subresource), "GET", path))
        return responses.decode(body, _or_default(type, dict))

    async def find(self, resource: Resource, namespace: str, name: str, *, type: type[T]) -> T | None:
        """Return an object, or None if it does not exist. Requires permission to list, not to get."""
        page = await self.list(resource, namespace, field_selector=f"metadata.name={name}", type=type)
        return page.items[0] if page.items else None

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        type: type[T] | None = None,
    ) -> ListOf[T]:
        """Return the objects of one namespace or of all namespaces, or one page if a limit is set.

        `type` is the type of an item.
        """
        query = _drop_empty(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            limit=str(limit) if limit else "",
            **{"continue": continue_token},
        )
        body = await self._send(_Call("list", resource.plural, "GET", resource.path(namespace), query))
        return responses.decode_list(body, _or_default(type, dict))

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        body: Any,
        *,
        name: str | None = None,
        subresource: str | None = None,
        strict: bool = False,
        dry_run: bool = False,
        field_manager: str = "",
        type: type[W] | None = None,
    ) -> W:
        """Create an object and return it, by default only its metadata.

        `strict` makes the server reject unknown and duplicate fields. `name` is only for a subresource, such
        as a pod's `binding`; an object's own name is in the body.
        """
        query = _write_query(strict=strict, dry_run=dry_run, field_manager=field_manager)
        path = resource.path(namespace, name, subresource)
        call = _Call("create", _label(resource, subresource), "POST", path, query, msgspec.json.encode(body))
        return responses.decode(await self._send(call), _or_default(type, Written))

    async def replace(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Any,
        *,
        subresource: str | None = None,
        type: type[W] | None = None,
    ) -> W:
        """Replace an object and return it, by default only its metadata.

        Raises ConflictError if the body has an outdated resourceVersion.
        """
        path = resource.path(namespace, name, subresource)
        label = _label(resource, subresource)
        call = _Call("update", label, "PUT", path, body=msgspec.json.encode(body))
        return responses.decode(await self._send(call), _or_default(type, Written))

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Any,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
        strict: bool = False,
        dry_run: bool = False,
        field_manager: str = "",
        force: bool = False,
        type: type[W] | None = None,
    ) -> W:
        """Patch an object and return it, by default only its metadata.

        APPLY requires a `field_manager`; `force` is for APPLY only and takes over fields of other managers.
        Raises ConflictError if the patch has an outdated resourceVersion.
        """
        if patch_type is PatchType.APPLY and not field_manager:
            raise ValueError("an apply patch needs a field_manager")
        if force and patch_type is not PatchType.APPLY:
            raise ValueError(f"force is for apply patches only, not for {patch_type.name}")
        query = _write_query(strict=strict, dry_run=dry_run, field_manager=field_manager)
        query |= _drop_empty(force="true" if force else "")
        path = resource.path(namespace, name, subresource)
        body = msgspec.json.encode(patch)
        call = _Call("patch", _label(resource, subresource), "PATCH", path, query, body, patch_type.value)
        return responses.decode(await self._send(call), _or_default(type, Written))

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete an object. It exists until its grace period has passed and its finalizers are removed.

        Raises NotFoundError if it does not exist, ConflictError if its UID or version differs.
        """
        options: meta.JsonObject = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
        }
        if uid or resource_version:
            options["preconditions"] = _drop_empty(uid=uid or "", resourceVersion=resource_version or "")
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        path = resource.path(namespace, name)
        await self._send(_Call("delete", resource.plural, "DELETE", path, body=msgspec.json.encode(options)))

    def watch_stream(
        self,
        resource: Resource,
        namespace: str | None,
        query: Mapping[str, str],
        *,
        idle_timeout_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Stream]:
        """Open a watch; the caller checks `status` and splits the lines."""
        path, parameters = resource.path(namespace), {"watch": "true", **query}
        return self._stream("watch", resource.plural, path, parameters, idle_timeout_seconds)

    def log_stream(
        self,
        namespace: str,
        pod: str,
        *,
        query: Mapping[str, str] | None = None,
        idle_timeout_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Stream]:
        """Open a pod's log with query parameters such as follow; the caller checks `status`."""
        path = PODS.path(namespace, pod, "log")
        return self._stream("get", "pods/log", path, query or {}, idle_timeout_seconds)

    @asynccontextmanager
    async def pod_websocket(
        self,
        namespace: str,
        pod: str,
        subresource: str,
        query: Sequence[tuple[str, str]],
        protocols: Sequence[str],
    ) -> AsyncIterator[WebSocket]:
        """Open a WebSocket to a pod for exec, attach or portforward.

        Raises ApiError with the server's reason if it refuses.
        """
        if not isinstance(self._transport, WebSocketTransport):
            raise errors.TransportError("this transport does not support WebSockets")
        path = PODS.path(namespace, pod, subresource)
        try:
            async with self._transport.websocket(path, query=query, protocols=protocols) as socket:
                yield socket
        except errors.UpgradeRefusedError as error:
            # A refused upgrade has no reason; repeat it as a plain request, which fails with the reason.
            answer = await self._transport.request("GET", path, query=dict(query))
            raise responses.error_from(answer) if answer.status == error.status else error from None

    async def has_resource(self, resource: Resource) -> bool:
        """Return whether the server serves this resource; custom resources may not be installed."""
        try:
            body = await self._send(_Call("get", "discovery", "GET", resource.group_path))
        except errors.NotFoundError:
            return False
        known = responses.decode(body, _ResourceNames).resources
        return any(entry.name == resource.plural for entry in known)

    async def server_version(self) -> ServerVersion:
        return responses.decode(await self._send(_Call("get", "version", "GET", "/version")), ServerVersion)

    async def _send(self, call: _Call) -> bytes:
        """Send the request, retry it if that is safe, and return the body of the response."""
        loop = asyncio.get_running_loop()
        started, tries = loop.time(), 0
        while True:
            tries += 1
            try:
                return await self._try(call)
            except errors.KubeError as error:
                delay = self._retry_policy.delay_seconds(
                    error,
                    reading=call.method == "GET",
                    tries=tries,
                    elapsed_seconds=loop.time() - started,
                    rng=self._rng,
                )
                if delay is None:
                    raise
            await asyncio.sleep(delay)

    async def _try(self, call: _Call) -> bytes:
        if call.method != "GET" and not self._may_write():
            raise errors.NotLeaderError(f"cannot {call.verb} {call.label}: this process is not the leader")
        loop = asyncio.get_running_loop()
        started, code = loop.time(), 0
        try:
            response = await self._request(call)
            code = response.status
        finally:
            self._record(call.verb, call.label, code, loop.time() - started)
        if not 200 <= code < 300:
            raise responses.error_from(response)
        self._observe_date(response, started)
        return response.body

    def _observe_date(self, answered: Response | Stream, sent: float) -> None:
        if date := answered.headers.get("date"):
            self._server_clock.observe(date, sent, asyncio.get_running_loop().time())

    async def _request(self, call: _Call) -> Response:
        return await self._transport.request(
            call.method,
            call.path,
            query=call.query,
            body=call.body,
            content_type=call.content_type,
            timeout_seconds=self._timeout_seconds,
        )

    @asynccontextmanager
    async def _stream(
        self, verb: str, label: str, path: str, query: Mapping[str, str], idle_timeout_seconds: float | None
    ) -> AsyncIterator[Stream]:
        """Open a stream and record the time until the response starts."""
        loop = asyncio.get_running_loop()
        started, code = loop.time(), 0
        opened = self._transport.stream(path, query=query, idle_timeout_seconds=idle_timeout_seconds)
        async with AsyncExitStack() as stack:
            try:
                stream = await stack.enter_async_context(opened)
                code = stream.status
            finally:
                self._record(verb, label, code, loop.time() - started)
            if 200 <= code < 300:
                self._observe_date(stream, started)
            yield stream

    def _record(self, verb: str, label: str, code: int, seconds: float) -> None:
        if self._observe is not None:
            self._observe(RequestRecord(verb, label, code, seconds))


class _Call(msgspec.Struct, frozen=True):
    verb: str
    label: str
    method: str
    path: str
    query: dict[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"


class _ResourceName(msgspec.Struct, frozen=True):
    name: str


class _ResourceNames(msgspec.Struct, frozen=True):
    resources: tuple[_ResourceName, ...] = ()


def _always() -> bool:
    return True


def _or_default(wanted: type[T] | None, default: type[Any]) -> type[T]:
    return default if wanted is None else wanted


def _label(resource: Resource, subresource: str | None) -> str:
    return f"{resource.plural}/{subresource}" if subresource else resource.plural


def _drop_empty(**parameters: str) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value}


def _write_query(*, strict: bool = False, dry_run: bool = False, field_manager: str = "") -> dict[str, str]:
    return _drop_empty(
        fieldValidation="Strict" if strict else "",
        dryRun="All" if dry_run else "",
        fieldManager=field_manager,
    )
