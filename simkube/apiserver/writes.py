"""Creating and changing objects, by the API server's rules."""

from __future__ import annotations

from paddlejob.api.meta import JsonObject
from paddlejob.kube import resource as resources
from paddlejob.kube.errors import StatusCause
from simkube.apiserver import refusals, scale
from simkube.apiserver.request import Backend, Request
from simkube.apiserver.rules import bodies
from simkube.apiserver.rules.kinds import ResourceType
from simkube.apiserver.store import Record, object_key

_GENERATE_TRIES = 8
_PRESENT_NAMESPACES = frozenset(["default", "kube-system", "kube-public"])


class Writer:
    """Create, replace and patch."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._store = backend.store

    def create(self, request: Request) -> Record:
        """Store a new object.

        Raises ApiError: 400, 403, 404 (namespace), 409 AlreadyExists, 422.
        """
        return self._create(request, bodies.body_of(request))

    def _create(self, request: Request, body: JsonObject) -> Record:
        kind = request.kind
        bodies.check_fields(request, body)
        self._check_namespace(request, body["metadata"].get("name", ""))
        body = self._completed(kind, body)
        body = self._backend.admit(request, body, None) or body
        bodies.check(kind, body, None)
        return self._insert(request, body)

    def replace(self, request: Request) -> tuple[Record, bool]:
        """Replace an object; return it and whether it was created.

        Raises ApiError: 400, 404, 409 Conflict, 422.
        """
        kind, store = request.kind, self._store
        if request.subresource == "scale":
            return self._replace_scale(request), False
        proposed = bodies.body_of(request)
        current = store.table(kind).objects.get(object_key(request.namespace, request.name))
        if current is None:
            if not kind.create_on_update or request.subresource:
                raise refusals.not_found(kind.resource, request.name)
            proposed["metadata"].pop("resourceVersion", None)
            return self._create(request, proposed), True
        bodies.check_fields(request, proposed)
        bodies.check_replaceable(kind, current, proposed["metadata"])
        return self._update(request, current, proposed), False

    def patch(self, request: Request) -> Record:
        """Change an object by a patch.

        Raises ApiError: 400, 404, 409 Conflict, 415, 422.
        """
        kind = request.kind
        apply = bodies.patch_function(kind, request.content_type)
        current = self._store.get(kind, request.namespace, request.name)
        if request.subresource == "scale":
            proposed = apply(scale.scale_object(current, strict=False), bodies.patch_of(request))
            return self._update(request, current, scale.with_replicas(current, proposed))
        proposed = apply(kind.with_head(current.body), bodies.patch_of(request))
        proposed = bodies.without_head(kind, request, proposed)
        version = proposed["metadata"].get("resourceVersion", current.metadata["resourceVersion"])
        if version != current.metadata["resourceVersion"]:
            raise refusals.modified(kind.resource, request.name)
        bodies.check_fields(request, proposed)
        return self._update(request, current, proposed)

    def bind(self, request: Request) -> None:
        """Put a pod on a node.

        Raises ApiError: 404, 409 Conflict when it is on one.
        """
        binding = request.decoded()
        name = request.name or binding["metadata"]["name"]
        current = self._store.get(request.kind, request.namespace, name)
        body, node = current.body, binding["target"]["name"]
        if body["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{body["spec"]["nodeName"]}"'
            raise refusals.conflict(request.resource, name, why)
        if current.metadata.get("deletionTimestamp"):
            why = f"pod {name} is being deleted, cannot be assigned to a host"
            raise refusals.conflict(request.resource, name, why)
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": self._backend.timestamp(),
        }
        others = [c for c in body["status"].get("conditions") or () if c["type"] != "PodScheduled"]
        status = {**body["status"], "conditions": [*others, scheduled]}
        if not request.dry_run:
            self._store.put(
                request.kind, {**body, "spec": {**body["spec"], "nodeName": node}, "status": status}
            )

    def _replace_scale(self, request: Request) -> Record:
        current = self._store.get(request.kind, request.namespace, request.name)
        return self._update(request, current, scale.with_replicas(current, request.decoded()))

    def _check_namespace(self, request: Request, name: str) -> None:
        if not request.namespace:
            return
        namespaces = self._store.tables[("", "v1", "namespaces")].objects
        namespace = namespaces.get(request.namespace)
        if namespace is None:
            if self._backend.require_namespaces and request.namespace not in _PRESENT_NAMESPACES:
                raise refusals.not_found(resources.NAMESPACES, request.namespace)
        elif namespace.metadata.get("deletionTimestamp"):
            raise refusals.forbidden(
                request.resource,
                name,
                f"unable to create new content in namespace {request.namespace} "
                "because it is being terminated",
                causes=[
                    StatusCause(
                        "NamespaceTerminating",
                        f"namespace {request.namespace} is being terminated",
                        "metadata.namespace",
                    )
                ],
            )

    def _completed(self, kind: ResourceType, body: JsonObject) -> JsonObject:
        """Return a new object with the fields that the server adds."""
        metadata = body["metadata"]
        if metadata.get("resourceVersion"):
            raise refusals.refusal(500, "", "resourceVersion should not be set on objects to be created")
        for field in (*bodies.SERVER_OWNED, *bodies.NEVER_STORED):
            metadata.pop(field, None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + self._backend.suffix()
        metadata["uid"] = self._backend.uid()
        metadata["creationTimestamp"] = self._backend.timestamp()
        if kind.has_generation:
            metadata["generation"] = 1
        if kind.prune is not None:
            body = kind.prune(body)
        if kind.prepare is not None:
            body = kind.prepare(body)
        if kind.default is not None:
            body = kind.default(body)
        return self._with_address(body) if kind.resource == resources.SERVICES else body

    def _with_address(self, service: JsonObject) -> JsonObject:
        spec = service["spec"]
        if spec.get("clusterIP") or spec["type"] == "ExternalName":
            return service
        address = self._backend.service_address()
        return {**service, "spec": {**spec, "clusterIP": address, "clusterIPs": [address]}}

    def _insert(self, request: Request, body: JsonObject) -> Record:
        kind, metadata = request.kind, body["metadata"]
        objects = self._store.table(kind).objects
        for _ in range(_GENERATE_TRIES):
            if object_key(request.namespace, metadata["name"]) not in objects:
                break
            if not metadata.get("generateName"):
                raise refusals.already_exists(kind.resource, metadata["name"])
            metadata = {**metadata, "name": metadata["generateName"] + self._backend.suffix()}
        body = {**body, "metadata": metadata}
        return Record(kind, body, 0) if request.dry_run else self._store.put(kind, body)

    def _update(self, request: Request, current: Record, proposed: JsonObject) -> Record:
        kind, previous = request.kind, current.body
        body = bodies.combined(kind, request.subresource, previous, proposed)
        if kind.prune is not None:
            body = kind.prune(body)
        if request.subresource != "status" and kind.default is not None:
            body = kind.default(body)
        body = self._backend.admit(request, body, previous) or body
        bodies.check(kind, body, previous, of_status=request.subresource == "status")
        if kind.has_generation and bodies.content(kind, body) != bodies.content(kind, previous):
            generation = previous["metadata"].get("generation", 0) + 1
            body = {**body, "metadata": {**body["metadata"], "generation": generation}}
        if body == previous:
            return current
        if request.dry_run:
            return Record(kind, body, current.version)
        if bodies.is_released(body["metadata"]):
            self._store.remove(kind, body)
            return Record(kind, body, current.version)
        return self._store.put(kind, body)
