"""What every Kubernetes object carries: narrow views that decode fast and drop what nobody reads."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Protocol

import msgspec

JsonObject = dict[str, Any]
"""A Kubernetes object's body as plain JSON. Pod templates stay in this form so that no field is lost."""


class View(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of the narrow, immutable views; unknown fields are ignored when decoding."""


def about(description: str, **schema: Any) -> msgspec.Meta:
    """Describe a field: its text, and its bounds in the words of OpenAPI.

    The bounds are not msgspec's own, which would refuse to decode an object that breaks one.
    """
    return msgspec.Meta(description=description, extra_json_schema=schema or None)


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

    type: Annotated[str, about("What the condition is about.")]
    status: Annotated[str, about("Whether it holds: True, False or Unknown.")]
    reason: Annotated[str, about("Reason, in one word for programs.")] = ""
    message: Annotated[str, about("Reason, in one line for people.")] = ""
    last_transition_time: Annotated[datetime | None, about("When the status last changed.")] = None
    observed_generation: Annotated[
        int, about("Generation of the spec that the condition describes.", format="int64")
    ] = 0


def resource_version_number(resource_version: str) -> int | None:
    """Return a version as a number that can be compared, or None where the server's versions are opaque."""
    return int(resource_version) if resource_version.isdecimal() else None
