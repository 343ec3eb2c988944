"""The CustomResourceDefinition, in version v1 and in v1beta1 for Kubernetes before 1.16.

`dropped_status_fields` compares the definition on an API server with the status that the operator writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from paddlejob.api import names
from paddlejob.api.crd.schema import job_schema, struct_schema, without
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import PaddleJobStatus

CRD_NAME = f"{names.PLURAL}.{names.GROUP}"

_COLUMNS = (
    ("Status", "string", ".status.phase", 0),
    ("Mode", "string", ".status.mode", 0),
    ("PS", "string", ".status.ps.ready", 0),
    ("Worker", "string", ".status.worker.ready", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Step", "integer", ".status.progress.step", 1),
    ("Loss", "string", ".status.progress.loss", 1),
    ("ETA", "string", ".status.progress.eta", 1),
    ("Heter", "string", ".status.heter.ready", 1),
    ("Reason", "string", ".status.reason", 1),
    ("Message", "string", ".status.message", 1),
)
"""Name, type, path and priority; only `kubectl get -o wide` shows columns of priority 1."""


def crd_v1() -> JsonObject:
    """Return the definition for apiextensions.k8s.io/v1."""
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": _columns("jsonPath"),
        "subresources": _subresources(),
        "schema": {"openAPIV3Schema": job_schema()},
    }
    return _definition("v1", {"versions": [version]})


def crd_v1beta1() -> JsonObject:
    """Return the definition for apiextensions.k8s.io/v1beta1.

    That version has no CEL rules, and no defaults while unknown fields are preserved. The operator applies
    the same defaults and reports the same errors.
    """
    schema = without(job_schema(), lambda keyword: keyword in ("default", "x-kubernetes-validations"))
    schema["properties"]["spec"]["required"] = ["worker"]
    return _definition(
        "v1beta1",
        {
            "version": names.VERSION,
            "versions": [{"name": names.VERSION, "served": True, "storage": True}],
            "additionalPrinterColumns": _columns("JSONPath"),
            "subresources": _subresources(),
            "validation": {"openAPIV3Schema": schema},
        },
    )


def _definition(api_version: str, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": f"apiextensions.k8s.io/{api_version}",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": [names.SHORT_NAME],
            },
            **spec,
        },
    }


def _columns(path_keyword: str) -> list[JsonObject]:
    """Return the printer columns; the key of the path differs between the versions."""
    columns: list[JsonObject] = []
    for name, kind, path, priority in _COLUMNS:
        column: JsonObject = {"name": name, "type": kind, path_keyword: path}
        columns.append(column | ({"priority": priority} if priority else {}))
    return columns


def _subresources() -> JsonObject:
    """Return the subresources; `scale` changes the number of workers."""
    return {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.worker.replicas",
            "statusReplicasPath": ".status.worker.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def dropped_status_fields(definition: JsonObject) -> tuple[str, ...]:
    """Return the paths of the status fields that an API server with this CRD drops from a write.

    `definition` is a CustomResourceDefinition of apiextensions.k8s.io/v1. A missing object is one path.
    """
    spec = definition["spec"]
    if spec.get("preserveUnknownFields"):
        return ()
    version: JsonObject = next((each for each in spec["versions"] if each["name"] == names.VERSION), {})
    served = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return tuple(_dropped("", _written(), served))


def sample_status() -> JsonObject:
    """Return a status with every field, to test which of them an API server keeps."""
    sample: JsonObject = _sample(_written()["properties"]["status"])
    return sample


def _sample(schema: JsonObject) -> Any:
    match schema["type"]:
        case "object":
            return {name: _sample(each) for name, each in schema["properties"].items()}
        case "array":
            return [_sample(schema["items"])]
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case _:
            return "2026-01-01T00:00:00Z" if schema.get("format") == "date-time" else "sample"


@cache
def _written() -> JsonObject:
    return {"properties": {"status": struct_schema(PaddleJobStatus)}}


def _dropped(path: str, wanted: JsonObject, served: JsonObject) -> Iterator[str]:
    keeps_unknown = served.get("x-kubernetes-preserve-unknown-fields")
    for name, schema in (wanted.get("properties") or {}).items():
        inner, known = f"{path}.{name}".lstrip("."), (served.get("properties") or {}).get(name)
        if known is not None:
            yield from _dropped(inner, schema, known)
        elif not keeps_unknown:
            yield inner
    if "items" in wanted:
        yield from _dropped(f"{path}[]", wanted["items"], served.get("items") or {})
