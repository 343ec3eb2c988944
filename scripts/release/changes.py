"""What changed for administrators between two releases: the CRD's fields and the operator's rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
_UPPER = ("maximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "minLength", "minItems", "minProperties")


def fields(crd: Mapping[str, Any]) -> dict[str, Schema]:
    """Return the schema of every field of the version that is stored, by its path."""
    version = next(each for each in crd["spec"]["versions"] if each["storage"])
    return dict(_fields("", version["schema"]["openAPIV3Schema"]))


def _fields(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, each in (schema.get("properties") or {}).items():
        yield from _fields(f"{path}.{name}".lstrip("."), each)
    for suffix, key in (("[]", "items"), ("[*]", "additionalProperties")):
        if isinstance(schema.get(key), Mapping):
            yield from _fields(f"{path}{suffix}", schema[key])


def incompatibilities(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return why objects that the old CRD takes may be refused or lose something with the new one."""
    before, after = fields(old), fields(new)
    found = []
    for path, schema in before.items():
        if path not in after:
            if not _is_open(path, after):
                found.append(f"{path}: removed")
            continue
        found += [f"{path}: {reason}" for reason in _narrowed(schema, after[path])]
    return found


def _is_open(path: str, after: Mapping[str, Schema]) -> bool:
    """Tell whether a field is kept all the same, because one above it takes any fields."""
    parents = [path[: len(path) - cut] for cut in range(1, len(path))]
    return any((after.get(each) or {}).get("x-kubernetes-preserve-unknown-fields") for each in parents)


def _narrowed(old: Schema, new: Schema) -> Iterator[str]:
    if old.get("type") != new.get("type") and "type" in new:
        yield f"type {old.get('type')} became {new['type']}"
    if added := set(new.get("required") or ()) - set(old.get("required") or ()):
        yield f"requires {', '.join(sorted(added))}"
    if "enum" in new and (lost := set(old.get("enum") or ["anything"]) - set(new["enum"])):
        yield f"no longer takes {', '.join(sorted(map(str, lost)))}"
    for key in (*_UPPER, *_LOWER):
        if key in new and (key not in old or _is_tighter(key, old[key], new[key])):
            yield f"{key} {old.get(key, 'absent')} became {new[key]}"
    if new.get("pattern") not in (None, old.get("pattern")):
        yield f"pattern {old.get('pattern', 'absent')} became {new['pattern']}"


def _is_tighter(key: str, old: float, new: float) -> bool:
    return new < old if key in _UPPER else new > old


def rights(objects: list[Mapping[str, Any]]) -> set[str]:
    """Return what the operator may do, one line for each verb on a resource: `pods: list (cluster)`."""
    found = set()
    for each in objects:
        if each["kind"] not in ("Role", "ClusterRole") or "aggregate-to" in str(
            each["metadata"].get("labels")
        ):
            continue
        scope = "everywhere" if each["kind"] == "ClusterRole" else "in its namespace"
        for rule in each["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    name = f"{resource}.{group}" if group else resource
                    only = f" named {', '.join(rule['resourceNames'])}" if rule.get("resourceNames") else ""
                    found |= {f"{verb} {name}{only} {scope}" for verb in rule["verbs"]}
    return found


def summary(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the fields that are new, gone or narrower, as lines of Markdown."""
    added = sorted(fields(new).keys() - fields(old).keys())
    # A new object is one line, whatever it contains.
    tops = [path for path in added if not any(path.startswith((f"{each}.", f"{each}[")) for each in added)]
    return [
        *(f"- new: `{path}`" for path in tops),
        *(f"- **changed**: `{each}`" for each in incompatibilities(old, new)),
    ]
