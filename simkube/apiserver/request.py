"""A request after routing, and the parts of the server that every verb works with."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.kube.resource import Resource
from simkube import virtual_loop
from simkube.apiserver import refusals
from simkube.apiserver.rules.kinds import ResourceType
from simkube.apiserver.store import Store

_GENERATED_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Path(msgspec.Struct, frozen=True):
    """The resource and name in a URL path, which may not exist."""

    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Path | None:
    """Parse a path; return None if it is not under /api or /apis/GROUP/VERSION."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    return Path(group, version, *_padded(rest, namespace))


def _padded(rest: list[str], namespace: str) -> tuple[str, str, str, str]:
    plural, name, subresource = [*rest, "", "", ""][:3]
    return plural, namespace, name, subresource


class Request(msgspec.Struct, frozen=True):
    """One request that is known to be about a resource of this server."""

    identity: str
    verb: str
    kind: ResourceType
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"

    @property
    def resource(self) -> Resource:
        """The kind's place in the API."""
        return self.kind.resource

    @property
    def dry_run(self) -> bool:
        """Whether to go through the motions and store nothing."""
        return bool(self.query.get("dryRun"))

    def decoded(self) -> Any:
        """Return the body's JSON.

        Raises ApiError (400) when it is none.
        """
        try:
            return msgspec.json.decode(self.body or b"")
        except msgspec.DecodeError as error:
            kind = self.resource.kind
            raise refusals.bad_request(
                f"the object provided is unrecognized (must be of type {kind}): {error}"
            ) from error


class AdmissionRequest(msgspec.Struct, frozen=True):
    """The request that an admission hook decides about. Its objects are read-only."""

    verb: str
    """create, update or delete."""
    identity: str
    resource: Resource
    namespace: str
    name: str
    subresource: str
    body: JsonObject | None
    """The object as it would be stored; None for a delete."""
    previous: JsonObject | None


AdmissionHook = Callable[[AdmissionRequest], JsonObject | None]
"""Raises ApiError to refuse, returns another object to change it, None to let it pass."""


class Backend:
    """Storage, clock, random generator and admission hooks, shared by all verbs."""

    def __init__(
        self,
        *,
        store: Store,
        rng: random.Random,
        now: Callable[[], datetime],
        admission: list[AdmissionHook],
        require_namespaces: bool,
    ) -> None:
        self.store = store
        self.rng = rng
        self.now = now
        self.admission = admission
        self.require_namespaces = require_namespaces
        self.addresses_given = 0

    def timestamp(self, *, seconds_from_now: float = 0.0) -> str:
        """Return a point in time as metadata carries it, to the second."""
        return virtual_loop.timestamp(self.now() + timedelta(seconds=seconds_from_now))

    def uid(self) -> str:
        """Return a UID that the seed decides."""
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def suffix(self) -> str:
        """Return the five letters that complete a generateName."""
        return "".join(self.rng.choices(_GENERATED_SUFFIX_LETTERS, k=5))

    def service_address(self) -> str:
        """Return an unused cluster address."""
        self.addresses_given += 1
        high, low = divmod(self.addresses_given, 250)
        return f"10.96.{high}.{low + 1}"

    def admit(
        self, request: Request, body: JsonObject | None, previous: JsonObject | None
    ) -> JsonObject | None:
        """Ask the admission hooks; return the object as they leave it.

        Raises ApiError when one refuses.
        """
        verb = {"patch": "update", "deletecollection": "delete"}.get(request.verb, request.verb)
        for hook in self.admission:
            asked = AdmissionRequest(
                verb=verb,
                identity=request.identity,
                resource=request.resource,
                namespace=request.namespace,
                name=request.name or ((body or {}).get("metadata") or {}).get("name", ""),
                subresource=request.subresource,
                body=body,
                previous=previous,
            )
            body = hook(asked) or body
        return body
