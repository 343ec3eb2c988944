"""The reference of the PaddleJob API as a page, from the same schema that the API server enforces."""

from __future__ import annotations

from collections.abc import Iterator

from paddlejob.api import names
from paddlejob.api.crd.schema import job_schema, struct_schema
from paddlejob.api.defaulting import CLEAN_POD_POLICIES, INTRANETS
from paddlejob.api.meta import Condition, JsonObject
from paddlejob.api.v1 import Role, RoleStatus

INTRODUCTION = f"""\
# PaddleJob, {names.API_VERSION}

`kubectl get {names.SHORT_NAME}` lists jobs; `kubectl explain {names.SHORT_NAME}.spec` says the same.
Fields of a pod template are Kubernetes' own and are passed on as they are.
"""

SPELLINGS = f"""\
## Accepted spellings

Published samples spell some values differently. They are accepted, with large or small letters, and answered
with a warning event of reason `{names.Reason.ALIAS_USED}`. `cleanPolicy` stands for `cleanPodPolicy`.
"""


def api_reference() -> str:
    """Return the page as Markdown."""
    schema = job_schema()
    spec, status = schema["properties"]["spec"], schema["properties"]["status"]
    servers = spec["properties"][Role.PS]
    roles = ", ".join(f"spec.{role}" for role in Role)
    parts = [
        INTRODUCTION,
        _section("spec", spec),
        _section(roles, {**servers, "description": "The pods of one role. There is at least one worker."}),
        *(
            _section(f"spec.{name}", spec["properties"][name])
            for name in ("schedulingPolicy", "restartPolicy")
        ),
        _spellings(),
        _refusals(schema),
        _section("status", status),
        _section(", ".join(f"status.{role}" for role in Role), struct_schema(RoleStatus)),
        *(_section(f"status.{name}", status["properties"][name]) for name in ("worldSize", "lastFailure")),
        _section("status.conditions[]", struct_schema(Condition)),
    ]
    return "\n".join(parts)


def _section(title: str, schema: JsonObject) -> str:
    rows = [
        f"| `{name}` | {_type(field)} | {_bounds(field)} | {_meaning(field)} |"
        for name, field in _fields(schema)
    ]
    head = ["| field | type | bounds | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", schema["description"], "", *head, *rows, ""])


def _fields(schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        yield name, field | ({"description": f"{field['description']} Required."} if name in required else {})


def _type(field: JsonObject) -> str:
    kind = "time" if field.get("format") == "date-time" else field["type"]
    default = f", default {field['default']}" if "default" in field else ""
    return f"{'list' if kind == 'array' else kind}{default}"


def _bounds(field: JsonObject) -> str:
    if "maximum" in field:
        return f"{field['minimum']} to {field['maximum']}"
    if "minimum" in field:
        return f"{field['minimum']} or more"
    if "enum" in field:
        return " or ".join(field["enum"])
    return f"at most {field['maxLength']} characters" if "maxLength" in field else ""


def _meaning(field: JsonObject) -> str:
    return str(field["description"]).replace("|", "\\|")


def _spellings() -> str:
    """Every accepted text that is not the API's own, with what it means."""
    rows = [
        f"| `{field}: {spelling}` | `{field}: {meaning}` |"
        for field, accepted in (("cleanPodPolicy", CLEAN_POD_POLICIES), ("intranet", INTRANETS))
        for spelling, meaning in accepted.items()
        if spelling != meaning.casefold()
    ]
    return "\n".join([SPELLINGS, "| written | read as |", "|---|---|", *rows, ""])


def _refusals(schema: JsonObject) -> str:
    sentences = dict.fromkeys(_sentences("", schema))
    return "\n".join(
        [
            "## What the API server refuses",
            "",
            "Beside wrong types, values out of bounds and unknown fields:",
            "",
            *(f"- {sentence}" for sentence in sentences),
            "",
        ]
    )


def _sentences(path: str, schema: JsonObject) -> Iterator[str]:
    """Yield the message of every rule; those of the three roles are told once, for the worker."""
    for rule in schema.get("x-kubernetes-validations", ()):
        field = (path + rule.get("fieldPath", "")).removeprefix(".")
        yield f"`{field}`: {rule['message'].replace('<', '&lt;')}"
    for name, child in schema.get("properties", {}).items():
        if path != ".spec" or name not in (Role.PS, Role.HETER):
            yield from _sentences(f"{path}.{name}", child)
