from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from paddlejob.api.crd.schema import job_schema, spec_schema, struct_schema, without
from paddlejob.api.v1 import PaddleJobStatus, ProgressMark, RoleSpec, TrainingProgress


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema below one, with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


NODES = dict(nodes(job_schema()))


def test_every_field_of_ours_is_described_in_sentences() -> None:
    exempt = (".apiVersion", ".kind", ".metadata", ".template.")
    texts = {path: schema.get("description", "") for path, schema in NODES.items() if path.rpartition(".")[2]}
    ours = {path: text for path, text in texts.items() if not path.endswith("[]")}
    ours = {path: text for path, text in ours.items() if not any(part in path for part in exempt)}
    assert len(ours) > 50
    assert [path for path, text in ours.items() if not (text[:1].isupper() and text.endswith("."))] == []


def test_every_node_is_structural() -> None:
    typeless = [path for path, schema in NODES.items() if "type" not in schema]
    assert typeless == []


def test_numbers_that_programs_print_may_be_larger_than_32_bits() -> None:
    """Since Kubernetes 1.37 the API server refuses a status with a larger number in an int32."""
    parts = (TrainingProgress, ".status.progress"), (ProgressMark, ".status.progressMark")
    bounded = {"attempt", "percent", "processes"}
    small = [
        f"{path}.{field.encode_name}"
        for part, path in parts
        for field in msgspec.structs.fields(part)
        if NODES[f"{path}.{field.encode_name}"].get("format") == "int32" and field.name not in bounded
    ]
    assert small == []


def test_unknown_fields_survive_inside_pod_templates_only() -> None:
    opened = [path for path, schema in NODES.items() if schema.get("x-kubernetes-preserve-unknown-fields")]
    assert opened
    assert all(".template.metadata" in path or ".template.spec" in path for path in opened)


def test_fields_are_named_as_in_yaml() -> None:
    assert list(spec_schema()["properties"]) == [
        "cleanPodPolicy",
        "cleanPolicy",
        "intranet",
        "withGloo",
        "ps",
        "worker",
        "heter",
        "sampleSetRef",
        "elastic",
        "schedulingPolicy",
        "backoffLimit",
        "restartPolicy",
        "spares",
        "successPolicy",
        "suspend",
        "activeDeadlineSeconds",
        "startupDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "recorder",
        "hangPolicy",
        "stragglerPolicy",
        "managedBy",
    ]


@pytest.mark.parametrize(
    ("path", "keywords"),
    [
        pytest.param(".spec.withGloo", {"type": "integer", "minimum": 0, "maximum": 2}, id="bounds"),
        pytest.param(".spec.worker.replicas", {"default": 1, "minimum": 1, "maximum": 5000}, id="workers"),
        pytest.param(".spec.ps.replicas", {"default": 1, "minimum": 0}, id="servers may be none"),
        pytest.param(".spec.intranet", {"type": "string", "default": "PodIP"}, id="a default of the API"),
        pytest.param(".status.startTime", {"type": "string", "format": "date-time"}, id="times"),
        pytest.param(".status.observedGeneration", {"format": "int64"}, id="generations are long"),
        pytest.param(".status.conditions", {"x-kubernetes-list-map-keys": ["type"]}, id="conditions by type"),
        pytest.param(".status.conditions[]", {"required": ["type", "status"]}, id="required by the type"),
    ],
)
def test_keywords(path: str, keywords: dict[str, Any]) -> None:
    assert keywords.items() <= NODES[path].items()


def test_aliases_of_the_clean_policy_leave_no_room_for_a_default() -> None:
    """A default would be written beside cleanPolicy and win over it."""
    assert "default" not in NODES[".spec.cleanPodPolicy"]


def test_status_has_no_defaults() -> None:
    assert not any("default" in schema for _, schema in nodes(struct_schema(PaddleJobStatus)))


def test_texts_that_rules_read_are_bounded() -> None:
    """The API server estimates a rule's cost from these bounds, and refuses what could be expensive."""
    ruled = {path: schema for path, schema in NODES.items() if schema.get("x-kubernetes-validations")}
    texts = {path for path, schema in ruled.items() if schema["type"] == "string"}
    assert texts >= {".spec.cleanPodPolicy", ".spec.intranet", ".spec.managedBy"}
    assert {path for path in texts if "maxLength" not in NODES[path]} == set()


def test_without_drops_keywords_and_keeps_fields_of_that_name() -> None:
    schema = {"default": {}, "properties": {"default": {"type": "string", "default": "a"}}}
    assert without(schema, lambda keyword: keyword == "default") == {
        "properties": {"default": {"type": "string"}}
    }


def test_a_struct_describes_itself() -> None:
    assert struct_schema(RoleSpec)["description"] == "The pods of one role."
