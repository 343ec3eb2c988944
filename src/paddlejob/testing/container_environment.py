"""The environment that a container starts with, resolved as the kubelet does it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from paddlejob.api.meta import JsonObject

CONFIG_MAP = "configmap"
SECRET = "secret"  # noqa: S105  (a kind of object)

_VARIABLE = re.compile(r"\$(\$|\(([^()]*)\))")


class Source(NamedTuple):
    """An object that a container's environment comes from."""

    kind: str
    """configmap or secret"""
    name: str


Sources = Mapping[Source, Mapping[str, str] | None]
"""The data of each source, None for one that does not exist."""


class ConfigurationError(Exception):
    """The container cannot be started yet: something that it needs is missing."""


def sources(container: JsonObject) -> list[Source]:
    """Return what has to be read to start a container, in order and once each."""
    found: dict[Source, None] = {}
    for entry in container.get("envFrom") or ():
        found |= {source: None for source, _ in _whole_sources(entry)}
    for variable in container.get("env") or ():
        value_from = variable.get("valueFrom") or {}
        for field, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
            if field in value_from:
                found[Source(kind, value_from[field]["name"])] = None
    return list(found)


def environment(container: JsonObject, pod: JsonObject, read: Sources) -> dict[str, str]:
    """Return a container's variables: envFrom first, then env, with $(NAME) replaced by what came before.

    Raises ConfigurationError when a source or a key that is not optional is missing.
    """
    variables: dict[str, str] = {}
    for entry in container.get("envFrom") or ():
        for source, reference in _whole_sources(entry):
            data = _required(source, reference, read)
            prefix = entry.get("prefix", "")
            variables |= {f"{prefix}{key}": value for key, value in data.items()}
    for variable in container.get("env") or ():
        value = _value(variable, pod, container, read, variables)
        if value is not None:
            variables[variable["name"]] = value
    return variables


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) by its value; $$ is a dollar, and an unknown name stays as it is."""

    def replaced(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return variables.get(found[2], found[0])

    return _VARIABLE.sub(replaced, text)


def _whole_sources(entry: JsonObject) -> list[tuple[Source, JsonObject]]:
    fields = (("configMapRef", CONFIG_MAP), ("secretRef", SECRET))
    return [(Source(kind, entry[field]["name"]), entry[field]) for field, kind in fields if field in entry]


def _required(source: Source, reference: JsonObject, read: Sources) -> Mapping[str, str]:
    data = read.get(source)
    if data is not None:
        return data
    if reference.get("optional"):
        return {}
    raise ConfigurationError(f'{source.kind} "{source.name}" not found')


def _value(
    variable: JsonObject,
    pod: JsonObject,
    container: JsonObject,
    read: Sources,
    variables: Mapping[str, str],
) -> str | None:
    """Return a variable's value, None when an optional source of it is missing."""
    value_from = variable.get("valueFrom")
    if not value_from:
        return expand(variable.get("value", ""), variables)
    if "fieldRef" in value_from:
        return _field(value_from["fieldRef"]["fieldPath"], pod)
    if "resourceFieldRef" in value_from:
        kind, _, name = value_from["resourceFieldRef"]["resource"].partition(".")
        return str(((container.get("resources") or {}).get(kind) or {}).get(name, "0"))
    for field, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
        if field in value_from:
            return _key(Source(kind, value_from[field]["name"]), value_from[field], read)
    raise ConfigurationError(f"env {variable['name']} has an unknown source: {', '.join(value_from)}")


def _key(source: Source, reference: JsonObject, read: Sources) -> str | None:
    data = _required(source, reference, read)
    if reference["key"] in data:
        return data[reference["key"]]
    if reference.get("optional"):
        return None
    raise ConfigurationError(f"couldn't find key {reference['key']} in {source.kind} {source.name}")


def _field(path: str, pod: JsonObject) -> str:
    """Return a field of the pod, such as status.podIP or metadata.labels['app']."""
    found = re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path)
    if found:
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    if path == "status.podIPs":
        return ",".join(entry["ip"] for entry in pod.get("status", {}).get("podIPs") or ())
    value: Any = pod
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        raise ConfigurationError(f"the pod has no {path}")
    return str(value)
