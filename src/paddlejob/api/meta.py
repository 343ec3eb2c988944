"""Types for the metadata of Kubernetes objects, with only the fields that are used."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Protocol

import msgspec

JsonObject = dict[str, Any]
"""A Kubernetes object as plain JSON. Pod templates keep this form, so that no field is lost."""

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""Sorts objects without a time first."""


class View(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base class of partial, immutable views of objects; decoding ignores unknown fields."""


def about(description: str, **schema: Any) -> msgspec.Meta:
    """Return a field's description and its bounds as OpenAPI keywords.

    These are not msgspec's bounds, because decoding must accept an object that violates one.
    """
    return msgspec.Meta(description=description, extra_json_schema=schema or None)


class OwnerReference(View, frozen=True):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(View, frozen=True):
    """The part of `metadata` that controllers read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)

    @property
    def controller_uid(self) -> str:
        """UID of the controlling owner, or empty."""
        for owner in self.owner_references:
            if owner.controller:
                return owner.uid
        return ""


class ObjectKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """Namespace and name, the key of queues and caches."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class HasMeta(Protocol):
    """An object with `metadata`."""

    @property
    def metadata(self) -> ObjectMeta: ...


class Condition(View, frozen=True):
    """A Kubernetes condition: one observable fact about an object and when it last changed."""

    type: Annotated[str, about("Type of the condition.")]
    status: Annotated[str, about("Status of the condition: True, False or Unknown.")]
    reason: Annotated[str, about("Machine-readable reason (CamelCase).")] = ""
    message: Annotated[str, about("Human-readable explanation.")] = ""
    last_transition_time: Annotated[datetime | None, about("When the status last changed.")] = None
    observed_generation: Annotated[
        int, about("Generation of the spec that the condition describes.", format="int64")
    ] = 0


def resource_version_number(resource_version: str) -> int | None:
    """Return a version as a comparable number, or None if the server's versions are opaque."""
    return int(resource_version) if resource_version.isdecimal() else None
