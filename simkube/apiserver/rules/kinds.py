"""The kinds that an in-memory API server knows and how each of them differs from the plain case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.kube import resource as resources
from paddlejob.kube.errors import StatusCause
from paddlejob.kube.resource import Resource
from simkube.apiserver.rules import defaults, pod_rules, pruning, rules

Prepare = Callable[[JsonObject], JsonObject]
"""Returns a body with its defaults; unchanged parts are shared."""

Validate = Callable[[JsonObject, JsonObject | None], Sequence[StatusCause]]
"""Validates a body, given the one that it replaces, if any."""

UnknownFields = Callable[[JsonObject], Sequence[str]]
"""Lists the fields that the schema does not know, such as `unknown field "spec.containers[0].imagee"`."""

_NAME_FIELDS = frozenset(["metadata.name", "metadata.namespace"])


class ScalePaths(msgspec.Struct, frozen=True):
    """Paths of the scale subresource in a custom resource, such as .spec.replicas."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


class ResourceType(msgspec.Struct, frozen=True, kw_only=True):
    """One kind and the ways in which its storage differs from the plain case."""

    resource: Resource
    custom: bool = False
    """Defined by a CustomResourceDefinition: no strategic patch, and a status write cannot touch metadata."""
    status: bool = False
    """Has a status subresource: the main resource ignores status, and status ignores the rest."""
    scale: ScalePaths | None = None
    has_generation: bool = False
    graceful: bool = False
    """Deletion waits for a node agent while the object is bound to a node."""
    unconditional_update: bool = True
    """A replace may leave the resourceVersion out."""
    create_on_update: bool = False
    """A replace creates the object if it does not exist."""
    returns_deleted: bool = False
    """A delete answers with the object rather than with a Status."""
    fields: frozenset[str] = _NAME_FIELDS
    """Fields that a field selector may name."""
    name_causes: Callable[[str], Sequence[StatusCause]] = rules.subdomain_causes
    prepare: Prepare | None = None
    """Runs when an object is created, after decoding."""
    default: Prepare | None = None
    """Runs on every write of the main resource."""
    prune: Prepare | None = None
    """Runs on every write, and drops the fields that the schema lacks."""
    validate: Validate | None = None
    unknown_fields: UnknownFields | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Key of the type: group, version and plural."""
        return self.resource.group, self.resource.version, self.resource.plural

    @property
    def head(self) -> bytes:
        """The start of every encoded object; bodies are kept without apiVersion and kind."""
        return b'{"kind":"%s","apiVersion":"%s",' % (
            self.resource.kind.encode(),
            self.resource.api_version.encode(),
        )

    def with_head(self, body: JsonObject) -> JsonObject:
        """Return a body as the API shows it."""
        return {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **body}


def custom_resource(
    resource: Resource,
    *,
    status: bool = True,
    scale: ScalePaths | None = None,
    default: Prepare | None = None,
    prune: Prepare | None = None,
    validate: Validate | None = None,
    unknown_fields: UnknownFields | None = None,
) -> ResourceType:
    """Return the type for a custom resource, with its schema as callables."""
    return ResourceType(
        resource=resource,
        custom=True,
        status=status,
        scale=scale,
        has_generation=True,
        unconditional_update=False,
        prepare=defaults.without_status if status else None,
        default=default,
        prune=prune,
        validate=validate,
        unknown_fields=unknown_fields,
    )


def from_definition(definition: JsonObject, **schema: Any) -> list[ResourceType]:
    """Return the types that a CustomResourceDefinition declares, one for each served version.

    `schema` is passed on to `custom_resource`: default, validate, unknown_fields. Unknown fields are dropped.
    """
    spec = definition["spec"]
    found = []
    for version in spec["versions"]:
        subresources = version.get("subresources") or {}
        scale = subresources.get("scale")
        found.append(
            custom_resource(
                Resource(
                    spec["group"],
                    version["name"],
                    spec["names"]["plural"],
                    spec["names"]["kind"],
                    namespaced=spec["scope"] == "Namespaced",
                ),
                status="status" in subresources,
                scale=scale
                and ScalePaths(
                    scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", "")
                ),
                prune=_pruning(spec, version),
                **schema,
            )
        )
    return found


def _pruning(spec: JsonObject, version: JsonObject) -> Prepare | None:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None or spec.get("preserveUnknownFields"):
        return None
    return partial(pruning.pruned_object, schema)


BUILT_IN: tuple[ResourceType, ...] = (
    ResourceType(
        resource=resources.PODS,
        status=True,
        has_generation=True,
        graceful=True,
        returns_deleted=True,
        fields=_NAME_FIELDS
        | {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        },
        prepare=defaults.new_pod,
        validate=pod_rules.pod_causes,
        unknown_fields=pod_rules.unknown_pod_fields,
    ),
    ResourceType(
        resource=resources.SERVICES,
        status=True,
        returns_deleted=True,
        fields=_NAME_FIELDS | {"spec.clusterIP", "spec.type"},
        name_causes=rules.service_name_causes,
        prepare=defaults.new_service,
        validate=rules.service_causes,
    ),
    ResourceType(resource=resources.CONFIG_MAPS, validate=rules.config_map_causes),
    ResourceType(resource=Resource("", "v1", "secrets", "Secret"), fields=_NAME_FIELDS | {"type"}),
    ResourceType(
        resource=resources.EVENTS,
        create_on_update=True,
        fields=_NAME_FIELDS
        | {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
        },
        validate=rules.event_causes,
    ),
    ResourceType(
        resource=resources.NAMESPACES,
        status=True,
        returns_deleted=True,
        fields=frozenset(["metadata.name", "status.phase"]),
        name_causes=rules.label_causes,
        prepare=defaults.new_namespace,
    ),
    ResourceType(
        resource=resources.NODES, status=True, fields=frozenset(["metadata.name", "spec.unschedulable"])
    ),
    ResourceType(resource=resources.LEASES, unconditional_update=False, create_on_update=True),
    ResourceType(
        resource=resources.CUSTOM_RESOURCE_DEFINITIONS,
        status=True,
        has_generation=True,
        unconditional_update=False,
        fields=frozenset(["metadata.name"]),
        prepare=defaults.new_definition,
    ),
)
