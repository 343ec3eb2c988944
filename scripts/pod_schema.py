"""Write the fields of pod templates that a Kubernetes release knows; `paddlejob run` checks files with it.

usage: pod_schema.py SWAGGER_JSON     (api/openapi-spec/swagger.json of the Kubernetes source)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src/paddlejob/local/input/pod_schema.json"
ROOTS = ("PodTemplateSpec", "ConfigMap", "Secret")
OPEN = {"IntOrString", "FieldsV1"}
"""Types that several kinds of JSON can express."""


def main(swagger: Path) -> None:
    definitions = {
        name.rpartition(".")[2]: body
        for name, body in json.loads(swagger.read_text())["definitions"].items()
        if name.startswith(("io.k8s.api.core.v1.", "io.k8s.apimachinery.pkg."))
    }
    found: dict[str, dict[str, str]] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in found:
            fields = definitions[name].get("properties", {})
            found[name] = {field: kind(body, definitions, waiting) for field, body in sorted(fields.items())}
    lines = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def kind(body: dict[str, Any], definitions: dict[str, Any], waiting: list[str]) -> str:
    """Return a field's type: string, integer, ..., quantity, any or a name, or []T or map[T] of these."""
    if reference := body.get("$ref"):
        name = reference.rpartition(".")[2]
        if name in OPEN:
            return "any"
        if name == "Quantity":
            return "quantity"
        if "properties" not in definitions[name]:
            return str(definitions[name].get("type", "any"))
        waiting.append(name)
        return str(name)
    match body.get("type"):
        case "array":
            return f"[]{kind(body['items'], definitions, waiting)}"
        case "object":
            return f"map[{kind(body['additionalProperties'], definitions, waiting)}]"
        case other:
            return str(other)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
