"""Turns a method and a path into a request, or into the answer if no resource is involved."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from paddlejob.kube import resource as resources
from paddlejob.kube.resource import Resource
from paddlejob.kube.transport import Response
from simkube.apiserver import refusals
from simkube.apiserver.request import Path, Request, parse_path
from simkube.apiserver.rules.kinds import ResourceType

_VERSION = {"major": "1", "minor": "35", "gitVersion": "v1.35.0", "platform": "memory"}
_PAGE_NOT_FOUND = Response(404, b"404 page not found\n", {"content-type": "text/plain"})
_HEALTH_PATHS = {"/healthz", "/livez", "/readyz"}
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


class Routes:
    """The kinds that a server serves."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], ResourceType] = {}
        self._paths: dict[str, Path | None] = {}

    def add(self, kind: ResourceType) -> None:
        """Serve a kind."""
        self._kinds[kind.key] = kind

    def remove(self, resource: Resource) -> None:
        """Serve a kind no longer."""
        self._kinds.pop((resource.group, resource.version, resource.plural), None)

    def kind(self, resource: Resource) -> ResourceType:
        """Return the type of a resource.

        Raises KeyError when it is not served.
        """
        return self._kinds[resource.group, resource.version, resource.plural]

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        identity: str = "",
    ) -> Request | Response:
        """Return the request, or its answer when it is about the server itself.

        Raises ApiError (404, 405) when there is no such resource or verb.
        """
        parsed = self._parse(path)
        if parsed is None:
            return _about_server(path)
        if not parsed.plural:
            return self._discovery(parsed)
        if parsed.plural == "bindings" and method == "POST":
            parsed = msgspec.structs.replace(parsed, plural="pods", subresource="binding")
        kind = self._kinds.get((parsed.group, parsed.version, parsed.plural))
        if kind is None:
            if self._is_built_in(parsed):
                raise refusals.no_such_resource()
            return _PAGE_NOT_FOUND
        verb = _verb(method, parsed)
        _check_place(kind, parsed)
        return Request(
            identity=identity,
            verb=verb,
            kind=kind,
            namespace=parsed.namespace,
            name=parsed.name,
            subresource=parsed.subresource,
            query=query,
            body=body,
            content_type=content_type,
        )

    def _parse(self, path: str) -> Path | None:
        if path not in self._paths:
            self._paths[path] = parse_path(path)
        return self._paths[path]

    def _is_built_in(self, path: Path) -> bool:
        return any(
            key[:2] == (path.group, path.version) and not kind.custom for key, kind in self._kinds.items()
        )

    def _discovery(self, path: Path) -> Response:
        kinds = [kind for key, kind in self._kinds.items() if key[:2] == (path.group, path.version)]
        if not kinds:
            return _PAGE_NOT_FOUND
        entries = [
            {
                "name": f"{kind.resource.plural}{suffix}",
                "namespaced": kind.resource.namespaced,
                "kind": kind.resource.kind,
                "verbs": ["get", "patch", "update"] if suffix else _VERBS,
            }
            for kind in kinds
            for suffix in _suffixes(kind)
        ]
        body = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": kinds[0].resource.api_version,
            "resources": entries,
        }
        return Response(200, msgspec.json.encode(body), {"content-type": "application/json"})


def _suffixes(kind: ResourceType) -> list[str]:
    return ["", *(["/status"] if kind.status else []), *(["/scale"] if kind.scale else [])]


def _about_server(path: str) -> Response:
    if path == "/version":
        return Response(200, msgspec.json.encode(_VERSION), {"content-type": "application/json"})
    if path in _HEALTH_PATHS:
        return Response(200, b"ok", {"content-type": "text/plain"})
    return _PAGE_NOT_FOUND


def _verb(method: str, path: Path) -> str:
    if path.subresource in {"binding", "eviction"} and method == "POST":
        return "create"
    verbs = _OBJECT_VERBS if path.name else _COLLECTION_VERBS
    if method not in verbs:
        raise refusals.method_not_allowed()
    return verbs[method]


def _check_place(kind: ResourceType, path: Path) -> None:
    """Raise ApiError (404) for a scope or a subresource that the kind does not have."""
    misplaced = bool(path.namespace) != kind.resource.namespaced and (path.namespace or path.name)
    if misplaced and path.subresource != "binding":
        raise refusals.no_such_resource()
    known = {"": True, "status": kind.status, "scale": kind.scale is not None}
    if kind.resource == resources.PODS:
        known |= {"binding": True, "eviction": True, "log": True}
    if not known.get(path.subresource, False):
        if kind.custom:
            raise refusals.not_found(kind.resource, path.name)
        raise refusals.no_such_resource()
