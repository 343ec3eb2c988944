"""A CustomResourceDefinition that lacks status fields at first and is upgraded later."""

from __future__ import annotations

import copy
import random

import msgspec

from paddlejob.api.crd.definition import CRD_NAME
from paddlejob.api.meta import JsonObject
from paddlejob.kube.resource import CUSTOM_RESOURCE_DEFINITIONS
from simkube.apiserver.server import ApiServer


class OldDefinition(msgspec.Struct, frozen=True):
    """The missing fields, and the time of the upgrade."""

    dropped: tuple[str, ...]
    """Fields of a status."""
    upgraded_at_seconds: float
    is_readable: bool
    """Whether the operator may read it."""

    def install(self, server: ApiServer, definition: JsonObject) -> None:
        """Serve PaddleJobs without these fields."""
        old = copy.deepcopy(definition)
        [version] = old["spec"]["versions"]
        fields = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        for name in self.dropped:
            del fields[name]
        if self.is_readable:
            server.create(CUSTOM_RESOURCE_DEFINITIONS, old, identity="user")
        else:
            server.forbidden.add(CUSTOM_RESOURCE_DEFINITIONS)
            server.install(old)

    def upgrade(self, server: ApiServer, definition: JsonObject) -> None:
        """Serve PaddleJobs with all fields."""
        if self.is_readable:
            patch = {"spec": definition["spec"]}
            server.patch(CUSTOM_RESOURCE_DEFINITIONS, "", CRD_NAME, patch, identity="user")
        else:
            server.install(definition)


def draw(rng: random.Random, definition: JsonObject, until: float) -> OldDefinition | None:
    """Draw an old definition, which most histories have none of."""
    if rng.random() < 0.9:
        return None
    return drop(rng, definition, until)


def drop(rng: random.Random, definition: JsonObject, until: float) -> OldDefinition:
    """Draw the fields that a definition lacks."""
    [version] = definition["spec"]["versions"]
    known = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    fields = sorted(known.keys() - {"phase"})
    dropped = tuple(rng.sample(fields, rng.randint(1, len(fields))))
    return OldDefinition(dropped, rng.uniform(0, until), rng.random() < 0.5)
