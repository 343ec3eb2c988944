"""The reference of the PaddleJob API as a page, from the same schema that the API server enforces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from paddlejob.api import names
from paddlejob.api.crd.schema import job_schema, struct_schema
from paddlejob.api.defaulting import CLEAN_POD_POLICIES, INTRANETS
from paddlejob.api.meta import Condition, JsonObject
from paddlejob.api.v1 import Role, RoleStatus

CHINESE: dict[str, str] = yaml.safe_load(Path(__file__).with_name("api_chinese.yaml").read_text())
Say = Callable[[str], str]
_REQUIRED = (" Required.", "必填。")


class _Words(NamedTuple):
    """How a default and the bounds of a field are said."""

    default: str
    between: str
    at_least: str
    either: str
    longest: str


_WORDS = (
    _Words(", default {}", "{} to {}", "{} or more", " or ", "at most {} characters"),
    _Words("，默认 {}", "{} 到 {}", "{} 或更大", " 或 ", "最多 {} 个字符"),
)

INTRODUCTION = f"""\
# PaddleJob, {names.API_VERSION}

[简体中文](api.zh-CN.md)

`kubectl get {names.SHORT_NAME}` lists jobs; `kubectl explain {names.SHORT_NAME}.spec` says the same.
Fields of a pod template are Kubernetes' own and are passed on as they are.
"""
CHINESE_INTRODUCTION = f"""\
# PaddleJob, {names.API_VERSION}

[English](api.md)

`kubectl get {names.SHORT_NAME}` 列出任务；`kubectl explain {names.SHORT_NAME}.spec` 显示同样的说明（英文）。
Pod 模板的字段是 Kubernetes 自己的，原样透传。
"""

SPELLINGS = f"""\
## Accepted spellings

Published samples spell some values differently. They are accepted, with large or small letters, and answered
with a warning event of reason `{names.Reason.ALIAS_USED}`. `cleanPolicy` stands for `cleanPodPolicy`.

| written | read as |
"""
CHINESE_SPELLINGS = f"""\
## 可以接受的写法

公开的示例中有些值写法不同。这些写法都可以接受，大小写不限，
但会产生 reason 为 `{names.Reason.ALIAS_USED}` 的警告事件。
`cleanPolicy` 就是 `cleanPodPolicy`。

| 写法 | 含义 |
"""

REFUSALS = """\
## What the API server refuses

Beside wrong types, values out of bounds and unknown fields:
"""
CHINESE_REFUSALS = """\
## API server 拒绝什么

除了类型错误、超出范围的值和未知字段，还有（API server 的原文）：
"""


def api_reference(*, chinese: bool = False) -> str:
    """Return the page as Markdown. A text without a translation raises KeyError."""
    say: Say = CHINESE.__getitem__ if chinese else str
    schema = job_schema()
    spec, status = schema["properties"]["spec"], schema["properties"]["status"]
    servers = spec["properties"][Role.PS]
    roles = ", ".join(f"spec.{role}" for role in Role)
    described = {**servers, "description": "The pods of one role. There is at least one worker."}
    sections = {
        "spec": spec,
        roles: described,
        **{f"spec.{name}": spec["properties"][name] for name in ("schedulingPolicy", "restartPolicy")},
    }
    observed = {
        "status": status,
        ", ".join(f"status.{role}" for role in Role): struct_schema(RoleStatus),
        **{f"status.{name}": status["properties"][name] for name in ("worldSize", "lastFailure")},
        "status.conditions[]": struct_schema(Condition),
    }
    return "\n".join(
        [
            CHINESE_INTRODUCTION if chinese else INTRODUCTION,
            *(_section(title, each, say) for title, each in sections.items()),
            _spellings(CHINESE_SPELLINGS if chinese else SPELLINGS),
            _refusals(CHINESE_REFUSALS if chinese else REFUSALS, schema),
            *(_section(title, each, say) for title, each in observed.items()),
        ]
    )


def _section(title: str, schema: JsonObject, say: Say) -> str:
    required, words = schema.get("required", ()), _WORDS[say is not str]
    rows = [
        f"| `{name}` | {_type(field, words)} | {_bounds(field, words)} | {_meaning(field, say)}"
        f"{_REQUIRED[say is not str] if name in required else ''} |"
        for name, field in schema["properties"].items()
    ]
    columns = ("field", "type", "bounds", "meaning") if say is str else ("字段", "类型", "范围", "含义")
    head = [f"| {' | '.join(columns)} |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", say(schema["description"]), "", *head, *rows, ""])


def _type(field: JsonObject, words: _Words) -> str:
    kind = "time" if field.get("format") == "date-time" else field["type"]
    default = words.default.format(field["default"]) if "default" in field else ""
    return f"{'list' if kind == 'array' else kind}{default}"


def _bounds(field: JsonObject, words: _Words) -> str:
    if "maximum" in field:
        return words.between.format(field["minimum"], field["maximum"])
    if "minimum" in field:
        return words.at_least.format(field["minimum"])
    if "enum" in field:
        return words.either.join(field["enum"])
    return words.longest.format(field["maxLength"]) if "maxLength" in field else ""


def _meaning(field: JsonObject, say: Say) -> str:
    return say(field["description"]).replace("|", "\\|")


def _spellings(introduction: str) -> str:
    """Every accepted text that is not the API's own, with what it means."""
    rows = [
        f"| `{field}: {spelling}` | `{field}: {meaning}` |"
        for field, accepted in (("cleanPodPolicy", CLEAN_POD_POLICIES), ("intranet", INTRANETS))
        for spelling, meaning in accepted.items()
        if spelling != meaning.casefold()
    ]
    return "\n".join([introduction + "|---|---|", *rows, ""])


def _refusals(introduction: str, schema: JsonObject) -> str:
    sentences = dict.fromkeys(_sentences("", schema))
    return "\n".join([introduction, *(f"- {sentence}" for sentence in sentences), ""])


def _sentences(path: str, schema: JsonObject) -> Iterator[str]:
    """Yield the message of every rule; those of the three roles are told once, for the worker."""
    for rule in schema.get("x-kubernetes-validations", ()):
        field = (path + rule.get("fieldPath", "")).removeprefix(".")
        yield f"`{field}`: {rule['message'].replace('<', '&lt;')}"
    for name, child in schema.get("properties", {}).items():
        if path != ".spec" or name not in (Role.PS, Role.HETER):
            yield from _sentences(f"{path}.{name}", child)
