"""Answers of the simulated API server to every verb on every resource."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.kube import resource as resources
from paddlejob.kube.transport import Response
from simkube.apiserver import deletes, reads, refusals, scale
from simkube.apiserver.request import Backend, Request
from simkube.apiserver.store import Record
from simkube.apiserver.writes import Writer
from simkube.kubelet import container_logs
from simkube.kubelet.container_logs import ContainerLogs

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
        self._deleter = deletes.Deleter(backend)
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
        """Answer a request.

        Raises ApiError when it is refused.
        """
        special = self._by_subresource.get(request.subresource)
        return special(request) if special else self._by_verb[request.verb](request)

    def _get(self, request: Request) -> Response:
        return _shown(request, 200, self._record(request))

    def _list(self, request: Request) -> Response:
        page = reads.list_page(self._store, request)
        return Response(200, reads.encode_page(request, page), _JSON)

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
        record, gone = self._deleter.delete(request, deletes.options_of(request))
        if gone and not request.kind.returns_deleted:
            details = {"name": record.name, "kind": request.resource.plural, "uid": record.uid}
            return _json(200, refusals.success(details=details))
        return _shown(request, 200, record)

    def _delete_collection(self, request: Request) -> Response:
        page = reads.list_page(self._store, request)
        options = deletes.options_of(request)
        for record in page.records:
            one = msgspec.structs.replace(request, namespace=record.namespace, name=record.name)
            self._deleter.delete(one, options)
        return Response(200, reads.encode_page(request, page), _JSON)

    def _bind(self, request: Request) -> Response:
        self._writer.bind(request)
        return _json(201, refusals.success(code=201))

    def _evict(self, request: Request) -> Response:
        deletion = msgspec.structs.replace(request, verb="delete", subresource="", body=None)
        self._deleter.delete(deletion, deletes.DeleteOptions())
        return _json(201, refusals.success(code=201))

    def _log(self, request: Request) -> Response:
        pod = self._record(request).body
        container = request.query.get("container") or pod["spec"]["containers"][0]["name"]
        if waiting := container_logs.waiting_reason(pod, container):
            why = f'container "{container}" in pod "{request.name}" is waiting to start: {waiting}'
            raise refusals.refusal(400, "BadRequest", why)
        return Response(200, self._container_logs.read(pod, request.query), {"content-type": "text/plain"})

    def _record(self, request: Request) -> Record:
        return self._store.get(request.kind, request.namespace, request.name)


def _shown(request: Request, code: int, record: Record) -> Response:
    if request.subresource == "scale":
        return _json(code, scale.scale_object(record, strict=request.verb == "get"))
    return Response(code, record.encoded(), _JSON)


def _json(code: int, body: JsonObject) -> Response:
    return Response(code, msgspec.json.encode(body), _JSON)
