"""The three patch formats, none of which changes its input: unchanged parts are shared."""

from __future__ import annotations

from typing import Any

from paddlejob.api.meta import JsonObject
from simkube.apiserver import refusals

MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Merge keys of the lists that a strategic merge patch merges; it replaces all other lists."""

_MERGED_PRIMITIVES = {"finalizers"}


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def strategic(target: Any, patch: JsonObject) -> JsonObject:
    """Apply a strategic merge patch, with the lists of MERGE_KEYS, `$patch` and `$delete...`."""
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [item for item in merged.get(field, ()) if item not in value]
        elif key.startswith("$"):
            continue  # $setElementOrder and $retainKeys: they order and prune, the merge is the same
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _strategic_value(key, merged.get(key), value)
    return merged


def _strategic_value(key: str, current: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return strategic(current, value)
    if isinstance(value, list) and key in _MERGED_PRIMITIVES:
        return [*(current or ()), *(item for item in value if item not in (current or ()))]
    if isinstance(value, list) and key in MERGE_KEYS and all(isinstance(item, dict) for item in value):
        return _strategic_list(_merge_key(key, value), current or [], value)
    return value


def _merge_key(field: str, elements: list[JsonObject]) -> str:
    """Return the identifying field; the ports of a Service have no containerPort and go by `port`."""
    if field == "ports" and any("port" in element for element in elements):
        return "port"
    return MERGE_KEYS[field]


def _strategic_list(key: str, current: list[JsonObject], patches: list[JsonObject]) -> list[JsonObject]:
    if any(patch == {"$patch": "replace"} for patch in patches):
        return [patch for patch in patches if "$patch" not in patch]
    merged = {element.get(key): element for element in current}
    for patch in patches:
        if key not in patch:
            raise refusals.bad_request(f"map: {patch} does not contain declared merge key: {key}")
        if patch.get("$patch") == "delete":
            merged.pop(patch[key], None)
        else:
            merged[patch[key]] = strategic(merged.get(patch[key]), patch)
    return list(merged.values())


def json_patch(document: Any, operations: list[JsonObject]) -> Any:
    """Apply a JSON patch (RFC 6902).

    Raises ApiError (422) when a test fails or a path does not exist, as the API server does.
    """
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise refusals.patch_rejected() from error
    return document


def _operate(document: Any, operation: JsonObject) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _added(document, path, operation["value"])
        case "replace":
            return _added(_removed(document, path), path, operation["value"]) if path else operation["value"]
        case "remove":
            return _removed(document, path)
        case "test":
            if _found(document, path) != operation.get("value"):
                raise ValueError(f"test of {operation['path']} failed")
            return document
        case "copy":
            return _added(document, path, _found(document, _pointer(operation["from"])))
        case "move":
            source = _pointer(operation["from"])
            return _added(_removed(document, source), path, _found(document, source))
        case unknown:
            raise ValueError(f"unknown operation {unknown!r}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"{text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _found(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[_index(document, part)] if isinstance(document, list) else document[part]
    return document


def _added(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    changed = document.copy()
    if isinstance(changed, list):
        if rest:
            changed[_index(changed, head)] = _added(changed[_index(changed, head)], rest, value)
        else:
            changed.insert(len(changed) if head == "-" else _index(changed, head, inserting=True), value)
    else:
        changed[head] = _added(changed[head], rest, value) if rest else value
    return changed


def _removed(document: Any, path: list[str]) -> Any:
    head, rest = path[0], path[1:]
    changed = document.copy()
    place: Any = _index(changed, head) if isinstance(changed, list) else head
    if rest:
        changed[place] = _removed(changed[place], rest)
    else:
        del changed[place]
    return changed


def _index(elements: list[Any], text: str, *, inserting: bool = False) -> int:
    if not text.isdecimal() or int(text) >= len(elements) + inserting:
        raise IndexError(text)
    return int(text)
