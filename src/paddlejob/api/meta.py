"""What every Kubernetes object carries: narrow views that decode fast and drop what nobody reads."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

import msgspec

JsonObject = dict[str, Any]
"""A Kubernetes object's body as plain JSON. Pod templates stay in this form so that no field is lost."""


class View(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of the narrow, immutable views; unknown fields are ignored when decoding."""


class OwnerReference(View, frozen=True):
    """The object that another belongs to, by UID: names are reused, UIDs are not."""

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
        """The object's place in the cluster."""
        return ObjectKey(self.namespace, self.name)

    @property
    def controller_uid(self) -> str:
        """UID of the controlling owner, empty when there is none."""
        for owner in self.owner_references:
            if owner.controller:
                return owner.uid
        return ""


class ObjectKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """Namespace and name: what queues and caches are keyed by."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class HasMeta(Protocol):
    """Anything with a `metadata`, so that caches work for every kind."""

    @property
    def metadata(self) -> ObjectMeta: ...


class Condition(View, frozen=True):
    """A Kubernetes condition: one observable fact about an object and when it last changed."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


def resource_version_number(resource_version: str) -> int | None:
    """Return a version as a number that can be compared, or None where the server's versions are opaque."""
    return int(resource_version) if resource_version.isdecimal() else None
