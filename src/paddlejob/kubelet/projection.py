"""The files of ConfigMap, Secret, downwardAPI and projected volumes."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from paddlejob.api.meta import JsonObject
from paddlejob.kubelet.environment import (
    CONFIG_MAP,
    SECRET,
    ConfigError,
    Source,
    Sources,
    find,
    pod_field,
    resource_field,
)

DEFAULT_MODE = 0o644


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
