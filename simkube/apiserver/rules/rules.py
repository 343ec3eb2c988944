"""The API server's validation, as far as a controller's mistakes run into it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paddlejob.api.meta import JsonObject
from paddlejob.kube.errors import StatusCause
from simkube.apiserver.refusals import (
    duplicate,
    forbidden_value,
    invalid_value,
    required,
)

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_STANDARD_FINALIZERS = {"foregroundDeletion", "orphan", "kubernetes"}


def subdomain_causes(name: str) -> list[StatusCause]:
    """Validate a name that may have dots."""
    return _name_causes(
        name,
        _SUBDOMAIN,
        253,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
        "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        f"'{_SUBDOMAIN.pattern}')",
    )


def label_causes(name: str) -> list[StatusCause]:
    """Validate a name that is one label of a domain name."""
    return _name_causes(name, LABEL, 63, LABEL_RULE)


def service_name_causes(name: str) -> list[StatusCause]:
    """Validate the name of a service, which must also start with a letter."""
    return _name_causes(
        name,
        _LABEL_1035,
        63,
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
        "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex "
        f"used for validation is '{_LABEL_1035.pattern}')",
    )


LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    f"'{LABEL.pattern}')"
)


def _name_causes(name: str, pattern: re.Pattern[str], limit: int, rule: str) -> list[StatusCause]:
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    causes = []
    if len(name) > limit:
        causes.append(invalid_value("metadata.name", name, f"must be no more than {limit} bytes"))
    if not pattern.fullmatch(name):
        causes.append(invalid_value("metadata.name", name, rule))
    return causes


def metadata_causes(metadata: JsonObject, previous: JsonObject | None, *, custom: bool) -> list[StatusCause]:
    """Validate an object's metadata, apart from its name."""
    causes = [*_labels_causes(metadata.get("labels") or {})]
    if metadata.get("ownerReferences"):
        causes += _owner_causes(metadata["ownerReferences"])
    if not custom:
        causes += _finalizer_causes(metadata.get("finalizers") or ())
    if previous is not None:
        causes += _metadata_change_causes(metadata, previous)
    return causes


def _metadata_change_causes(metadata: JsonObject, previous: JsonObject) -> Iterator[StatusCause]:
    for field in ("uid", "deletionTimestamp"):
        if metadata.get(field) != previous.get(field):
            yield invalid_value(f"metadata.{field}", metadata.get(field), "field is immutable")
    if previous.get("deletionTimestamp"):
        added = [
            finalizer
            for finalizer in metadata.get("finalizers") or ()
            if finalizer not in (previous.get("finalizers") or ())
        ]
        if added:
            shown = ", ".join(f'"{finalizer}"' for finalizer in added)
            yield forbidden_value(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{shown}}}",
            )


def _labels_causes(labels: Mapping[str, str]) -> Iterator[StatusCause]:
    for key, value in labels.items():
        name = key.rpartition("/")[2]
        if len(name) > 63 or not _QUALIFIED_NAME.fullmatch(name):
            yield invalid_value(
                "metadata.labels", key, "name part must be no more than 63 bytes and alphanumeric"
            )
        if len(value) > 63:
            yield invalid_value("metadata.labels", value, "must be no more than 63 bytes")
        elif value and not _QUALIFIED_NAME.fullmatch(value):
            yield invalid_value(
                "metadata.labels",
                value,
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
                "'.', and must start and end with an alphanumeric character",
            )


def _finalizer_causes(finalizers: Sequence[str]) -> Iterator[StatusCause]:
    """Check the names of finalizers, which custom resources choose as they like."""
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_value(f"metadata.finalizers[{index}]", finalizer, why)


def _owner_causes(owners: Sequence[JsonObject]) -> Iterator[StatusCause]:
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield invalid_value(f"metadata.ownerReferences.{field}", "", "must not be empty")
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        why = "Only one reference can have Controller set to true"
        yield invalid_value("metadata.ownerReferences", list(owners), why)


def service_causes(service: JsonObject, previous: JsonObject | None) -> list[StatusCause]:
    """Validate a service, or a change of a service."""
    spec = service["spec"]
    ports: Sequence[JsonObject] = spec.get("ports") or ()
    causes = []
    if not ports and spec.get("clusterIP") != "None" and spec["type"] != "ExternalName":
        causes.append(required("spec.ports"))
    names: set[str] = set()
    numbers: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            causes.append(required(f"spec.ports[{index}].name"))
        elif port.get("name") in names:
            causes.append(duplicate(f"spec.ports[{index}].name", port["name"]))
        if (port.get("protocol"), port.get("port")) in numbers:
            causes.append(duplicate(f"spec.ports[{index}]", port))
        names.add(port.get("name", ""))
        numbers.add((port.get("protocol"), port.get("port")))
    if previous is not None and spec.get("clusterIP") != previous["spec"].get("clusterIP"):
        causes.append(invalid_value("spec.clusterIPs[0]", [spec.get("clusterIP")], "may not change once set"))
    return causes


def config_map_causes(config_map: JsonObject, previous: JsonObject | None) -> list[StatusCause]:
    """Validate a ConfigMap, or a change of an immutable one."""
    causes = []
    size = sum(len(key) + len(value) for key, value in (config_map.get("data") or {}).items())
    if size > 1 << 20:
        causes.append(StatusCause("FieldValueTooLong", "Too long: may not be more than 1048576 bytes", ""))
    if previous is not None and previous.get("immutable"):
        why = "field is immutable when `immutable` is set"
        causes += [
            forbidden_value(field, why)
            for field in ("immutable", "data", "binaryData")
            if config_map.get(field) != previous.get(field)
        ]
    return causes


def event_causes(event: JsonObject, previous: JsonObject | None) -> list[StatusCause]:  # noqa: ARG001
    """Validate an event."""
    namespace = (event.get("involvedObject") or {}).get("namespace", "")
    if namespace and namespace != event["metadata"]["namespace"]:
        return [invalid_value("involvedObject.namespace", namespace, "does not match event.namespace")]
    return []
