"""The kubelet's rules as pure functions, shared by local runs and the simulated kubelet.

The first part resolves the environment of a container and the files of its volumes, which are made from
ConfigMaps, Secrets, the downward API, or projections of them. The second part has the rules for restarts,
back-off and the phases of pods.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from paddlejob.api import quantity
from paddlejob.api.meta import JsonObject

Contents = Mapping[str, bytes]
"""The entries of a ConfigMap or a Secret."""

CONFIG_MAP = "configmap"
SECRET = "secret"  # noqa: S105 - a kind of object
_TITLES = {CONFIG_MAP: "ConfigMap", SECRET: "Secret"}
_WHOLE = (("configMapRef", CONFIG_MAP), ("secretRef", SECRET))
_KEY = (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET))

_VARIABLE_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
"""A name ends at the first closing parenthesis and may contain an opening one."""
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_FIELDS = frozenset(
    (
        *("metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"),
        *("spec.nodeName", "spec.serviceAccountName"),
        *("status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"),
    )
)
DEFAULT_MODE = 0o644


class ConfigError(Exception):
    """A container cannot be created yet (CreateContainerConfigError), with the kubelet's message."""


class Source(NamedTuple):
    """A ConfigMap or Secret."""

    kind: str
    """`configmap` or `secret`."""
    name: str


class Sources(msgspec.Struct, frozen=True):
    """The sources of a container's variables."""

    pod: JsonObject
    """The pod in the API server's format."""
    find: Callable[[Source], Contents | None]
    """Returns None if the object does not exist."""
    allocatable: Mapping[str, object] = {}
    """The node's resources, which are the limits of a container without limits."""


def references(container: JsonObject) -> list[Source]:
    """Return the ConfigMaps and Secrets that a container refers to, in order and without duplicates."""
    found = [
        Source(kind, str(entry[field].get("name")))
        for entry in container.get("envFrom") or ()
        for field, kind in _WHOLE
        if entry.get(field)
    ]
    for variable in container.get("env") or ():
        origin = variable.get("valueFrom") or {}
        found += [Source(kind, str(origin[field].get("name"))) for field, kind in _KEY if origin.get(field)]
    return list(dict.fromkeys(found))


def resolve(container: JsonObject, sources: Sources) -> dict[str, str]:
    """Return a container's variables: envFrom first, then env.

    Raises ConfigError if a required ConfigMap or Secret does not exist.
    """
    values: dict[str, str] = {}
    for entry in container.get("envFrom") or ():
        values.update(_from_object(entry, sources))
    for variable in container.get("env") or ():
        name, origin = str(variable["name"]), variable.get("valueFrom")
        if origin is None:
            values[name] = expand(str(variable.get("value") or ""), values)
        elif (value := _from_origin(origin, container, sources)) is not None:
            values[name] = value
    return values


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` with the variable's value and `$$` with a dollar; keep unknown names."""

    def replacement(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return values.get(found[1], found[0])

    return _REFERENCE.sub(replacement, text)


def find(source: Source, reference: JsonObject, sources: Sources) -> Contents | None:
    """Return an object's contents, None if it is optional and does not exist. Raises ConfigError."""
    contents = sources.find(source)
    if contents is None and not reference.get("optional"):
        raise ConfigError(f'{source.kind} "{source.name}" not found')
    return contents


def _from_object(entry: JsonObject, sources: Sources) -> Iterator[tuple[str, str]]:
    prefix = entry.get("prefix") or ""
    for field, kind in _WHOLE:
        if reference := entry.get(field):
            contents = find(Source(kind, str(reference.get("name"))), reference, sources) or {}
            for key, value in contents.items():
                if _VARIABLE_NAME.fullmatch(f"{prefix}{key}"):
                    yield f"{prefix}{key}", value.decode(errors="replace")


def _from_origin(origin: JsonObject, container: JsonObject, sources: Sources) -> str | None:
    """Return a variable's value, None if its optional source is missing."""
    if reference := origin.get("fieldRef"):
        return pod_field(str(reference["fieldPath"]), sources.pod)
    if reference := origin.get("resourceFieldRef"):
        return resource_field(reference, container, sources.allocatable)
    for field, kind in _KEY:
        if reference := origin.get(field):
            return _from_key(Source(kind, str(reference.get("name"))), reference, sources)
    raise ConfigError(f"valueFrom has no supported source: {', '.join(origin)}")


def _from_key(source: Source, reference: JsonObject, sources: Sources) -> str | None:
    contents, key = find(source, reference, sources), str(reference.get("key"))
    if contents is not None and key in contents:
        return contents[key].decode(errors="replace")
    if reference.get("optional"):
        return None
    namespace = sources.pod["metadata"].get("namespace", "")
    raise ConfigError(f"couldn't find key {key} in {_TITLES[source.kind]} {namespace}/{source.name}")


def pod_field(path: str, pod: JsonObject) -> str:
    """Return a field of a pod by its path in the downward API. Raises ConfigError."""
    if found := _SUBSCRIPT.fullmatch(path):
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    if path not in _FIELDS:
        raise ConfigError(f"field label not supported: {path}")
    part, _, name = path.partition(".")
    value: Any = (pod.get(part) or {}).get(name)
    match value:
        case dict():
            return "\n".join(f'{key}="{value[key]}"' for key in sorted(value))
        case list():
            return ",".join(str(entry["ip"]) for entry in value)
    return "" if value is None else str(value)


def resource_field(reference: JsonObject, container: JsonObject, allocatable: Mapping[str, object]) -> str:
    """Return a container's request or limit in units of the divisor; a missing limit is the node's amount.

    Raises ConfigError.
    """
    path = str(reference.get("resource"))
    section, _, name = path.partition(".")
    resources = container.get("resources") or {}
    amount = (resources.get(section) or {}).get(name)
    if amount is None and section == "requests":
        amount = (resources.get("limits") or {}).get(name, "0")
    if amount is None:
        amount = allocatable.get(name, "0")
    try:
        return quantity.in_units_of(amount, reference.get("divisor") or "1")
    except ValueError as error:
        raise ConfigError(f"cannot resolve {path}: {error}") from error


class File(NamedTuple):
    path: str
    content: bytes
    mode: int


def files_of(volume: JsonObject, sources: Sources) -> Iterator[File]:
    """Yield the files of a volume. Raises ConfigError if a required object does not exist."""
    for field, make in MAKERS.items():
        if field in volume:
            yield from make(volume[field] or {}, sources)
    projected = volume.get("projected") or {}
    for source in projected.get("sources") or ():
        for each in files_of(source, sources):
            yield each._replace(mode=projected.get("defaultMode") or each.mode)


def stays_inside(path: str) -> bool:
    """Return whether a path stays inside the volume, as the API server requires of item paths."""
    return bool(path) and not posixpath.isabs(path) and ".." not in path.split("/")


def _config_map_files(reference: JsonObject, sources: Sources) -> Iterator[File]:
    yield from _object_files(reference, Source(CONFIG_MAP, str(reference.get("name"))), sources)


def _secret_files(reference: JsonObject, sources: Sources) -> Iterator[File]:
    name = reference.get("secretName") or reference.get("name")
    yield from _object_files(reference, Source(SECRET, str(name)), sources)


def _object_files(reference: JsonObject, source: Source, sources: Sources) -> Iterator[File]:
    contents = find(source, reference, sources) or {}
    mode = reference.get("defaultMode") or DEFAULT_MODE
    items = reference.get("items")
    if items is None:
        yield from (File(key, value, mode) for key, value in contents.items())
        return
    for item in items:
        if item["key"] in contents:
            yield File(item["path"], contents[item["key"]], item.get("mode") or mode)
        elif not reference.get("optional"):
            raise ConfigError(f"{source.kind} references non-existent config key: {item['key']}")


def _downward_files(volume: JsonObject, sources: Sources) -> Iterator[File]:
    mode = volume.get("defaultMode") or DEFAULT_MODE
    for item in volume.get("items") or ():
        if "fieldRef" in item:
            text = pod_field(item["fieldRef"]["fieldPath"], sources.pod)
        else:
            reference = item["resourceFieldRef"]
            container = _container(sources.pod, reference.get("containerName"))
            text = resource_field(reference, container, sources.allocatable)
        yield File(item["path"], text.encode(), item.get("mode") or mode)


def _container(pod: JsonObject, name: object) -> JsonObject:
    containers = ((pod.get("spec") or {}).get("containers") or ()) if name else ()
    return next((each for each in containers if each.get("name") == name), {})


MAKERS = {"configMap": _config_map_files, "secret": _secret_files, "downwardAPI": _downward_files}
"""The volume types with generated files."""


FIRST_BACK_OFF_SECONDS = 10.0
MAX_BACK_OFF_SECONDS = 300.0
BACK_OFF_RESET_SECONDS = 600.0
"""A container that ran for this long restarts without delay."""


def is_restarted(restart_policy: str, exit_code: int) -> bool:
    """Return whether the kubelet restarts a container that exited."""
    return restart_policy == "Always" or (restart_policy == "OnFailure" and exit_code != 0)


def back_off_seconds(
    restarts: int, first_seconds: float = FIRST_BACK_OFF_SECONDS, max_seconds: float = MAX_BACK_OFF_SECONDS
) -> float:
    """Return the delay before the next restart: 0 for the first one, then doubling."""
    return min(first_seconds * 2 ** (restarts - 1), max_seconds) if restarts else 0.0


def back_off_message(seconds: float, container: str, pod: str = "") -> str:
    """Return the kubelet's message for a container in CrashLoopBackOff; `pod` as name_namespace(uid)."""
    suffix = f" pod={pod}" if pod else ""
    minutes, rest = divmod(seconds, 60)
    duration = f"{minutes:g}m{rest:g}s" if minutes else f"{rest:g}s"
    return f"back-off {duration} restarting failed container={container}{suffix}"


class ContainerOutcome(NamedTuple):
    """The part of a container's state that determines the phase."""

    has_started: bool
    """Whether it runs or ever ran."""
    exit_code: int | None
    """None while it runs or waits for a start or restart."""


def phase_of(
    restart_policy: str,
    init: Sequence[ContainerOutcome],
    containers: Sequence[ContainerOutcome],
    *,
    ends: bool = False,
) -> str:
    """Return Pending, Running, Succeeded or Failed; `ends` means that no container will be restarted."""
    if any(each.exit_code and (restart_policy == "Never" or ends) for each in init):
        return "Failed"
    if not all(each.has_started for each in containers):
        return "Pending"
    if any(each.exit_code is None for each in containers) or (restart_policy == "Always" and not ends):
        return "Running"
    if not any(each.exit_code for each in containers):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" or ends else "Running"
