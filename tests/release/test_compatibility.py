"""No change of the CRD makes a cluster refuse or forget what an earlier release has stored."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from scripts.release import changes
from tests.support.definitions import PADDLE_JOB_CRD, definition

RELEASED = sorted((Path(__file__).parent / "released").glob("crd-*.yaml"))
NOW = PADDLE_JOB_CRD


@pytest.mark.parametrize("released", RELEASED, ids=lambda path: path.stem)
def test_fields_of_a_release_are_neither_removed_nor_narrowed(released):
    assert changes.incompatibilities(definition(f"tests/release/released/{released.name}"), NOW) == []


@pytest.mark.parametrize("released", RELEASED, ids=lambda path: path.stem)
def test_the_version_that_a_release_stores_is_served(released):
    old = definition(f"tests/release/released/{released.name}")
    stored = {each["name"] for each in old["spec"]["versions"] if each["storage"]}
    assert stored <= {each["name"] for each in NOW["spec"]["versions"] if each["served"]}
    for field in ("group", "scope", "names"):
        assert old["spec"][field] == NOW["spec"][field]


def schema_of(crd: dict[str, Any], *path: str) -> dict[str, Any]:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path:
        schema = schema["properties"][name]
    return schema


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(
            lambda crd: schema_of(crd, "spec")["properties"].pop("intranet"),
            "spec.intranet: removed",
            id="a field",
        ),
        pytest.param(
            lambda crd: schema_of(crd, "spec", "backoffLimit").update(maximum=10),
            "spec.backoffLimit: maximum 1000 became 10",
            id="an upper bound",
        ),
        pytest.param(
            lambda crd: schema_of(crd, "spec", "backoffLimit").update(minimum=1),
            "spec.backoffLimit: minimum 0 became 1",
            id="a lower bound",
        ),
        pytest.param(
            lambda crd: schema_of(crd, "spec", "suspend").update(type="string"),
            "spec.suspend: type boolean became string",
            id="a type",
        ),
        pytest.param(
            lambda crd: schema_of(crd, "spec").update(required=["intranet"]),
            "spec: requires intranet",
            id="a must",
        ),
        pytest.param(
            lambda crd: schema_of(crd, "spec", "successPolicy").update(enum=["AllWorkers"]),
            "spec.successPolicy: no longer takes Worker0",
            id="a word",
        ),
        pytest.param(
            lambda crd: schema_of(crd, "spec", "managedBy").update(pattern="a.*"),
            "spec.managedBy: pattern absent became a.*",
            id="a pattern",
        ),
    ],
)
def test_a_narrower_definition_is_found(change, said):
    changed = copy.deepcopy(NOW)
    change(changed)
    assert changes.incompatibilities(NOW, changed) == [said]
    # What the narrower one takes, the wider one takes too, except a type or a must.
    assert all("type" in each for each in changes.incompatibilities(changed, NOW))


def test_rights_are_compared_verb_by_verb():
    role = {
        "kind": "ClusterRole",
        "metadata": {},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    local = {
        "kind": "Role",
        "metadata": {},
        "rules": [{"apiGroups": ["a.b"], "resources": ["c"], "verbs": ["list"], "resourceNames": ["d"]}],
    }
    assert changes.rights([role, local]) == {"get pods everywhere", "list c.a.b named d in its namespace"}
