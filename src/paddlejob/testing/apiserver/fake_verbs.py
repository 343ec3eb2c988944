"""Every verb on every resource: what the in-memory API server answers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.kube import resource as resources
from paddlejob.kube.transport import Response
from paddlejob.testing.apiserver import fake_deletes, fake_reads, fake_refusals, fake_scale
from paddlejob.testing.apiserver.fake_request import Backend, Request
from paddlejob.testing.apiserver.fake_store import Record
from paddlejob.testing.apiserver.fake_writes import Writer
from paddlejob.testing.kubelet import container_logs
from paddlejob.testing.kubelet.container_logs import ContainerLogs

_JSON = {"content-type": "application/json"}


class Verbs:
    """Answers requests that have been routed."""

    def __init__(
        self,
        backend: Backend,
        container_logs: ContainerLogs,
        *,
        on_definition: Callable[[JsonObject], None],
    ) -> None:
        self._store = backend.store
        self._container_logs = container_logs
        self._on_definition = on_definition
        self._writer = Writer(backend)
        self._deleter = fake_deletes.Deleter(backend)
        self._by_verb: dict[str, Callable[[Request], Response]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._replace,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }
        self._by_subresource: dict[str, Callable[[Request], Response]] = {
            "binding": self._bind,
            "eviction": self._evict,
            "log": self._log,
        }

    def answer(self, request: Request) -> Response:
        """Do what a request asks for.

        Raises ApiError when it is refused.
        """
        special = self._by_subresource.get(request.subresource)
        return special(request) if special else self._by_verb[request.verb](request)

    def _get(self, request: Request) -> Response:
        return _shown(request, 200, self._record(request))

    def _list(self, request: Request) -> Response:
        page = fake_reads.list_page(self._store, request)
        return Response(200, fake_reads.encode_page(request, page), _JSON)

    def _create(self, request: Request) -> Response:
        return _shown(request, 201, self._serving(request, self._writer.create(request)))

    def _replace(self, request: Request) -> Response:
        record, created = self._writer.replace(request)
        return _shown(request, 201 if created else 200, self._serving(request, record))

    def _patch(self, request: Request) -> Response:
        return _shown(request, 200, self._serving(request, self._writer.patch(request)))

    def _serving(self, request: Request, record: Record) -> Record:
        """Return a record that was written; a definition is served from now on."""
        if request.resource == resources.CUSTOM_RESOURCE_DEFINITIONS and not request.dry_run:
            self._on_definition(record.body)
        return record

    def _delete(self, request: Request) -> Response:
        record, gone = self._deleter.delete(request, fake_deletes.options_of(request))
        if gone and not request.kind.returns_deleted:
            details = {"name": record.name, "kind": request.resource.plural, "uid": record.uid}
            return _json(200, fake_refusals.success(details=details))
        return _shown(request, 200, record)

    def _delete_collection(self, request: Request) -> Response:
        page = fake_reads.list_page(self._store, request)
        options = fake_deletes.options_of(request)
        for record in page.records:
            one = msgspec.structs.replace(request, namespace=record.namespace, name=record.name)
            self._deleter.delete(one, options)
        return Response(200, fake_reads.encode_page(request, page), _JSON)

    def _bind(self, request: Request) -> Response:
        self._writer.bind(request)
        return _json(201, fake_refusals.success(code=201))

    def _evict(self, request: Request) -> Response:
        deletion = msgspec.structs.replace(request, verb="delete", subresource="", body=None)
        self._deleter.delete(deletion, fake_deletes.DeleteOptions())
        return _json(201, fake_refusals.success(code=201))

    def _log(self, request: Request) -> Response:
        pod = self._record(request).body
        container = request.query.get("container") or pod["spec"]["containers"][0]["name"]
        if waiting := container_logs.waiting_reason(pod, container):
            why = f'container "{container}" in pod "{request.name}" is waiting to start: {waiting}'
            raise fake_refusals.refusal(400, "BadRequest", why)
        return Response(200, self._container_logs.read(pod, request.query), {"content-type": "text/plain"})

    def _record(self, request: Request) -> Record:
        return self._store.get(request.kind, request.namespace, request.name)


def _shown(request: Request, code: int, record: Record) -> Response:
    if request.subresource == "scale":
        return _json(code, fake_scale.scale_object(record, strict=request.verb == "get"))
    return Response(code, record.encoded(), _JSON)


def _json(code: int, body: JsonObject) -> Response:
    return Response(code, msgspec.json.encode(body), _JSON)
