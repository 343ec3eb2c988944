"""An in-memory Kubernetes API server behind the Transport seam.

    server = ApiServer(rng=random.Random(seed))
    server.register(custom_resource(PADDLE_JOBS))
    client = Client(server.transport("operator"))

Several clients share one server. Each request is handled in one step of the event loop, so requests are
atomic, as on a real server. It answers
like kube-apiserver 1.35: the behaviour table in `tests/simulator` holds for both.

Left out: server-side apply, RBAC, the checks of a custom resource's schema (unknown fields are dropped; give
`install` or `custom_resource` callables for more), conversion between versions, discovery beyond one group.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from email.utils import format_datetime
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.kube import responses
from paddlejob.kube.errors import ApiError, NotFoundError, TransportError
from paddlejob.kube.resource import PODS, Resource
from paddlejob.kube.transport import Response, Stream
from simkube import virtual_loop
from simkube.apiserver import garbage, refusals, routes, verbs, watches
from simkube.apiserver.request import AdmissionHook, Backend, Request
from simkube.apiserver.request_log import RequestLog, WriteRecord
from simkube.apiserver.rules import kinds
from simkube.apiserver.rules.bodies import is_released
from simkube.apiserver.rules.kinds import ResourceType
from simkube.apiserver.store import Record, Store
from simkube.faults.tenants import TenantFaults
from simkube.kubelet import container_logs

GARBAGE_COLLECTOR = "garbage-collector"
"""The identity of the server's own controllers in the log of writes."""


class ApiServer:
    """The server; see the module's documentation.

    `require_namespaces` refuses objects in namespaces that do not exist. `streaming_list=False` refuses
    sendInitialEvents, as servers before 1.32 do. `expired_as_status` answers 410 to a watch from a version
    that is too old; recent servers answer 200 and an ERROR event. `history_limit` is the number of changes of
    each kind that are kept for watches.
    """

    def __init__(
        self,
        *,
        rng: random.Random | None = None,
        now: Callable[[], datetime] = virtual_loop.now,
        history_limit: int = 10_000,
        require_namespaces: bool = False,
        streaming_list: bool = True,
        expired_as_status: bool = False,
        bookmark_seconds: float = watches.BOOKMARK_SECONDS,
        garbage_delay_seconds: tuple[float, float] = (0.05, 2.0),
    ) -> None:
        self.rng = rng or random.Random(0)
        self.store = Store(history_limit=history_limit)
        self.log = RequestLog()
        self.admission: list[AdmissionHook] = []
        self.tenant_faults = TenantFaults()
        self.forbidden: set[Resource] = set()
        """Resources for which every request is refused with 403."""
        self.streaming_list = streaming_list
        self.expired_as_status = expired_as_status
        self.container_logs = container_logs.ContainerLogs(now)
        self.watches: list[watches.Watch] = []
        """The open ones, oldest first."""
        self.routes = routes.Routes()
        self._date = (virtual_loop.EPOCH, format_datetime(virtual_loop.EPOCH, usegmt=True))
        self._bookmark_seconds = bookmark_seconds
        self._backend = Backend(
            store=self.store,
            rng=self.rng,
            now=now,
            admission=self.admission,
            require_namespaces=require_namespaces,
        )
        self._verbs = verbs.Verbs(self._backend, self.container_logs, on_definition=self.install)
        for kind in kinds.BUILT_IN:
            self.register(kind)
        self.garbage_collector = garbage.GarbageCollector(
            self.store,
            delete=self._collect,
            update=self._change_metadata,
            rng=self.rng,
            delay_seconds=garbage_delay_seconds,
        )
        garbage.NamespaceController(
            self.store, delete=self._collect, rng=self.rng, delay_seconds=garbage_delay_seconds
        )

    @property
    def date(self) -> str:
        """The `Date` header: the time of the server in whole seconds."""
        moment = self._backend.now().replace(microsecond=0)
        if moment != self._date[0]:
            self._date = moment, format_datetime(moment, usegmt=True)
        return self._date[1]

    @property
    def version(self) -> int:
        """The version of the latest change."""
        return self.store.version

    def register(self, kind: ResourceType) -> None:
        """Serve a kind."""
        self.routes.add(kind)
        self.store.table(kind)

    def install(self, definition: JsonObject, **schema: Any) -> None:
        """Serve the kinds of a CustomResourceDefinition; `schema` as for `kinds.custom_resource`."""
        for kind in kinds.from_definition(definition, **schema):
            self.register(kind)

    def transport(
        self, identity: str = "client", *, latency_seconds: tuple[float, float] | None = None
    ) -> SimulatedTransport:
        """Return a connection to this server; requests take a random time within the latency, if any."""
        return SimulatedTransport(self, identity, latency_seconds)

    def handle(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        identity: str = "test",
    ) -> Response:
        """Answer one request, now."""
        try:
            request = self.routes.request(
                method, path, query or {}, body=body, content_type=content_type, identity=identity
            )
        except ApiError as error:
            return refusals.response(error)
        if isinstance(request, Response):
            return request
        version = self.store.version
        try:
            if request.resource in self.forbidden:
                raise refusals.forbidden(request.resource, request.name, "no role grants it")
            response = self._verbs.answer(request)
        except ApiError as error:
            response = refusals.response(error)
        self._note(request, response, changed=self.store.version != version)
        return response

    def open_stream(
        self, path: str, query: Mapping[str, str], identity: str, idle_timeout_seconds: float | None
    ) -> watches.Watch | watches.Answered | FollowedLog:
        """Open a watch or a followed log, or answer any other GET."""
        if query.get("watch", "").lower() not in {"1", "true"}:
            response = self.handle("GET", path, query=query, identity=identity)
            if path.endswith("/log") and query.get("follow") == "true" and response.status == 200:
                return FollowedLog(self, path, query)
            return watches.answered(response)
        try:
            request = self.routes.request("GET", path, query, identity=identity)
            if isinstance(request, Response):
                return watches.answered(request)
            self.log.note("watch", request.resource.plural, "")
            return self._open_watch(request, idle_timeout_seconds)
        except ApiError as error:
            return watches.answered(refusals.response(error))

    def get(self, resource: Resource, namespace: str, name: str) -> JsonObject | None:
        """Return an object as it is stored, None when there is none."""
        kind = self.routes.kind(resource)
        try:
            return kind.with_head(self.store.get(kind, namespace, name).body)
        except NotFoundError:
            return None

    def objects(self, resource: Resource, namespace: str | None = None) -> list[JsonObject]:
        """Return all objects of a kind, optionally of one namespace, sorted by name."""
        kind = self.routes.kind(resource)
        records = self.store.table(kind).objects
        return [
            kind.with_head(records[key].body)
            for key in sorted(records)
            if namespace is None or records[key].namespace == namespace
        ]

    def create(self, resource: Resource, body: JsonObject, *, identity: str = "test") -> JsonObject:
        """Create an object without delay, in the namespace that it names, and return it.

        Raises ApiError.
        """
        namespace = body.get("metadata", {}).get("namespace", "default") if resource.namespaced else None
        return self._send("POST", resource.path(namespace), body, "application/json", identity)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject,
        *,
        subresource: str | None = None,
        identity: str = "test",
    ) -> JsonObject:
        """Apply a merge patch without delay and return the object.

        Raises ApiError.
        """
        path = resource.path(namespace or None, name, subresource)
        return self._send("PATCH", path, patch, "application/merge-patch+json", identity)

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        options: JsonObject | None = None,
        identity: str = "test",
    ) -> JsonObject:
        """Delete an object without delay, or begin to, and return the answer.

        Raises ApiError.
        """
        path = resource.path(namespace or None, name)
        return self._send("DELETE", path, options or {}, "application/json", identity)

    def drop_watches(self) -> None:
        """Close all open watches, as a server that restarts does."""
        for watch in list(self.watches):
            watch.end()

    def compact(self) -> None:
        """Forget all history: a watch from any version but the present one answers 410."""
        self.store.compact()

    def _send(self, method: str, path: str, body: JsonObject, content_type: str, identity: str) -> JsonObject:
        encoded = msgspec.json.encode(body)
        response = self.handle(method, path, body=encoded, content_type=content_type, identity=identity)
        if response.status >= 300:
            raise responses.error_from(response)
        decoded: JsonObject = msgspec.json.decode(response.body)
        return decoded

    def _open_watch(
        self, request: Request, idle_timeout_seconds: float | None
    ) -> watches.Watch | watches.Answered:
        options = watches.parse(
            request.kind, request.namespace, request.query, streaming_list=self.streaming_list
        )
        if self.expired_as_status and options.version and not options.initial_events:
            self.store.table(request.kind).since(options.version)
        watch = watches.Watch(
            self.store,
            request.kind,
            options,
            rng=self.rng,
            idle_timeout_seconds=idle_timeout_seconds,
            bookmark_seconds=self._bookmark_seconds,
        )
        self.watches.append(watch)
        return watch

    def close_watch(self, watch: watches.Watch) -> None:
        """Forget a watch after its client has closed it."""
        watch.stop()
        if watch in self.watches:
            self.watches.remove(watch)

    def _collect(self, kind: ResourceType, namespace: str, name: str, uid: str) -> None:
        """Delete for the garbage collector, by a normal request."""
        path = kind.resource.path(namespace or None, name)
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        self._send("DELETE", path, body, "application/json", GARBAGE_COLLECTOR)

    def _change_metadata(self, record: Record, metadata: JsonObject) -> None:
        metadata = {key: value for key, value in metadata.items() if value != []}
        body = {**record.body, "metadata": metadata}
        if is_released(metadata):
            self.store.remove(record.type, body)
        else:
            self.store.put(record.type, body)

    def _note(self, request: Request, response: Response, *, changed: bool) -> None:
        self.log.note(request.verb, request.resource.plural, request.subresource)
        if request.verb in {"get", "list"}:
            return
        name = request.name
        if not name and response.status < 300 and request.verb == "create":
            name = msgspec.json.decode(response.body, type=_Named).metadata.name
        self.log.add(
            WriteRecord(
                at_seconds=asyncio.get_running_loop().time(),
                identity=request.identity,
                verb=request.verb,
                resource=request.resource.plural,
                subresource=request.subresource,
                namespace=request.namespace,
                name=name,
                code=response.status,
                changed=changed,
                body=request.body or b"",
            )
        )


class FollowedLog:
    """A log that is sent while its container runs; a `Stream`."""

    def __init__(self, server: ApiServer, path: str, query: Mapping[str, str]) -> None:
        self.status = 200
        self.headers: Mapping[str, str] = {"content-type": "text/plain"}
        *_, self._namespace, _, self._name, _ = path.split("/")
        self._server = server
        self._query = query

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the log until the container has ended or its pod is deleted."""
        pod = self._pod()
        assert pod is not None
        async for chunk in self._server.container_logs.follow(pod, self._query, self._is_running):
            yield chunk

    def _is_running(self, instance: container_logs.Instance) -> bool:
        pod = self._pod()
        if pod is None or container_logs.instance_of(pod, instance.container) != instance:
            return False
        return container_logs.is_running(pod, instance.container)

    def _pod(self) -> JsonObject | None:
        return self._server.get(PODS, self._namespace, self._name)


class SimulatedTransport:
    """A client's connection to an in-memory API server; a `Transport`."""

    def __init__(self, server: ApiServer, identity: str, latency_seconds: tuple[float, float] | None) -> None:
        self.server = server
        self.identity = identity
        self._latency_seconds = latency_seconds
        self._closed = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = 30.0,
    ) -> Response:
        """Send one request; it takes effect half-way through the latency."""
        await self._travel()
        if method != "GET":
            faults = self.server.tenant_faults
            if refusal := await faults.meet_write(self.identity, path, timeout_seconds):
                return refusal
        response = self.server.handle(
            method, path, query=query, body=body, content_type=content_type, identity=self.identity
        )
        headers = {**response.headers, "date": self.server.date}
        await self._travel()
        return Response(response.status, response.body, headers)

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        idle_timeout_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Stream]:
        """Open a watch or a log."""
        return self._stream(path, query or {}, idle_timeout_seconds)

    @asynccontextmanager
    async def _stream(
        self, path: str, query: Mapping[str, str], idle_timeout_seconds: float | None
    ) -> AsyncIterator[Stream]:
        await self._travel()
        if path.endswith("/log"):
            *_, namespace, _, name, _ = path.split("/")
            await self.server.tenant_faults.meet_log(self.server.get(PODS, namespace, name))
        stream = self.server.open_stream(path, query, self.identity, idle_timeout_seconds)
        stream.headers = {**stream.headers, "date": self.server.date}
        try:
            yield stream
        finally:
            if isinstance(stream, watches.Watch):
                self.server.close_watch(stream)

    async def close(self) -> None:
        """Refuse further requests."""
        self._closed = True

    async def _travel(self) -> None:
        if self._closed:
            raise TransportError("this transport was closed")
        latency = self._latency_seconds
        await asyncio.sleep(0 if latency is None else self.server.rng.uniform(*latency) / 2)


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
