"""Converts the types into a structural OpenAPI schema, which the API server enforces."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec.inspect as shape

from paddlejob.api.crd import cel
from paddlejob.api.defaulting import CLEAN_POD_POLICIES, INTRANETS
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import (
    CleanPodPolicy,
    Intranet,
    PaddleJob,
    PaddleJobSpec,
    RestartPolicy,
    Role,
    RoleSpec,
    SchedulingPolicy,
)
from paddlejob.api.validation.errors import DNS_LABEL, DNS_LABEL_MAX
from paddlejob.api.validation.template import MAX_CONTAINERS, MAX_VARIABLES, RESTART_POLICIES

_WRITTEN_BY_USERS = (PaddleJobSpec, RestartPolicy, RoleSpec, SchedulingPolicy)
_SCALARS: dict[type, JsonObject] = {
    shape.StrType: {"type": "string"},
    shape.EnumType: {"type": "string"},
    shape.BoolType: {"type": "boolean"},
    shape.IntType: {"type": "integer", "format": "int32"},
    shape.FloatType: {"type": "number"},
    shape.DateTimeType: {"type": "string", "format": "date-time"},
}
_OPEN: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXT_MAP: JsonObject = {"type": "object", "additionalProperties": {"type": "string"}}


def job_schema() -> JsonObject:
    """Return the schema of a whole PaddleJob."""
    return {
        "description": "PaddleJob trains a PaddlePaddle program on one or more pods.",
        "type": "object",
        "required": ["spec"],
        "x-kubernetes-validations": cel.job_rules(),
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": spec_schema(),
            "status": struct_schema(PaddleJob)["properties"]["status"],
        },
    }


def spec_schema() -> JsonObject:
    """Return the schema of the spec, with its rules."""
    schema: JsonObject = struct_schema(PaddleJob)["properties"]["spec"]
    schema["x-kubernetes-validations"] = cel.spec_rules()
    fields = schema["properties"]
    fields["restartPolicy"]["x-kubernetes-validations"] = cel.restart_policy_rules()
    fields["managedBy"]["x-kubernetes-validations"] = cel.managed_by_rules()
    fields["intranet"]["x-kubernetes-validations"] = cel.spelling_rules(INTRANETS, Intranet)
    for field in ("cleanPodPolicy", "cleanPolicy"):
        rules = cel.spelling_rules(CLEAN_POD_POLICIES, CleanPodPolicy)
        fields[field]["x-kubernetes-validations"] = rules
    for role in Role:
        role_schema = fields[role]
        role_schema["x-kubernetes-validations"] = cel.role_rules()
        role_schema["properties"]["template"] |= _template_schema(role)
    fields[Role.WORKER]["properties"]["replicas"]["minimum"] = 1
    return schema


def struct_schema(struct: type) -> JsonObject:
    """Return the schema of a struct: types, defaults, descriptions and bounds of its fields."""
    info = shape.type_info(struct)
    assert isinstance(info, shape.StructType)
    schema: JsonObject = {"description": inspect.getdoc(struct), "type": "object"}
    required = [field.encode_name for field in info.fields if field.required]
    if required:
        schema["required"] = required
    schema["properties"] = {field.encode_name: _field_schema(struct, field) for field in info.fields}
    return schema


def _field_schema(struct: type, field: shape.Field) -> JsonObject:
    stated = field.type.extra_json_schema or {} if isinstance(field.type, shape.Metadata) else {}
    schema = _type_schema(field.type)
    # An empty default means that the field is absent, so it is not a default of the schema.
    if struct in _WRITTEN_BY_USERS and isinstance(field.default, str | int) and field.default:
        schema["default"] = field.default
    return {**{key: stated[key] for key in stated if key == "description"}, **schema, **stated}


def _type_schema(kind: shape.Type) -> JsonObject:
    match kind:
        case shape.Metadata(type=described):
            return _type_schema(described)
        case shape.StructType(cls=cls):
            return struct_schema(cls)
        case shape.UnionType(types=members):
            return _type_schema(next(member for member in members if not isinstance(member, shape.NoneType)))
        case shape.VarTupleType(item_type=item):
            return {"type": "array", "items": _type_schema(item)}
        case shape.DictType():
            return {"type": "object"}
        case _:
            return dict(_SCALARS[type(kind)])


def _template_schema(role: Role) -> JsonObject:
    """Return the part of the pod template schema that we check; the API server checks the pods."""
    return {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "metadata": {**_OPEN, "properties": {"labels": _TEXT_MAP, "annotations": _TEXT_MAP}},
            "spec": {
                **_OPEN,
                "required": ["containers"],
                "x-kubernetes-validations": cel.pod_rules(role),
                "properties": {
                    "restartPolicy": {"type": "string", "enum": list(RESTART_POLICIES)},
                    "hostNetwork": {"type": "boolean"},
                    "containers": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": MAX_CONTAINERS,
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": _container_schema(),
                    },
                },
            },
        },
    }


def _container_schema() -> JsonObject:
    name = {"type": "string", "maxLength": DNS_LABEL_MAX, "pattern": f"^{DNS_LABEL.pattern}$"}
    reference = {**_OPEN, "properties": {"fieldPath": {"type": "string", "maxLength": 1024}}}
    variable = {
        **_OPEN,
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 1024},
            "value": {"type": "string"},
            "valueFrom": {**_OPEN, "properties": {"fieldRef": {**reference, "required": ["fieldPath"]}}},
        },
    }
    return {
        **_OPEN,
        "required": ["name", "image"],
        "properties": {
            "name": name,
            "image": {"type": "string", "minLength": 1},
            "env": {"type": "array", "maxItems": MAX_VARIABLES, "items": variable},
        },
    }


def without(schema: JsonObject, is_dropped: Callable[[str], bool]) -> Any:
    """Return a copy of a schema without some keywords, at any depth."""
    copy: JsonObject = {}
    for keyword, value in schema.items():
        if is_dropped(keyword):
            continue
        if keyword == "properties":
            copy[keyword] = {name: without(child, is_dropped) for name, child in value.items()}
        elif isinstance(value, dict):
            copy[keyword] = without(value, is_dropped)
        else:
            copy[keyword] = value
    return copy
