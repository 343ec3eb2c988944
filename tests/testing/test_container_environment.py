from __future__ import annotations

from typing import Any

import pytest

from paddlejob.testing.container_environment import (
    CONFIG_MAP,
    SECRET,
    ConfigurationError,
    Source,
    environment,
    expand,
    sources,
)

POD = {
    "metadata": {
        "name": "pod-1",
        "namespace": "team",
        "uid": "u-1",
        "labels": {"app": "x"},
        "annotations": {},
    },
    "spec": {"nodeName": "node-1"},
    "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "hostIP": "172.0.0.1"},
}
READ = {
    Source(CONFIG_MAP, "config"): {"A": "1", "B": "2"},
    Source(SECRET, "secret"): {"S": "s"},
    Source(CONFIG_MAP, "missing"): None,
}


def from_field(path: str) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}


def from_key(name: str, key: str, **options: bool) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {"configMapKeyRef": {"name": name, "key": key, **options}}}


def from_map(name: str, **options: Any) -> dict[str, Any]:
    return {"configMapRef": {"name": name, **options}}


CASES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "nothing": ({}, {}),
    "a plain value": ({"env": [{"name": "X", "value": "1"}]}, {"X": "1"}),
    "no value is empty": ({"env": [{"name": "X"}]}, {"X": ""}),
    "a whole config map": ({"envFrom": [from_map("config")]}, {"A": "1", "B": "2"}),
    "a whole config map with a prefix": (
        {"envFrom": [{**from_map("config"), "prefix": "P_"}]},
        {"P_A": "1", "P_B": "2"},
    ),
    "an optional config map that is missing": ({"envFrom": [from_map("missing", optional=True)]}, {}),
    "a whole secret": ({"envFrom": [{"secretRef": {"name": "secret"}}]}, {"S": "s"}),
    "env wins over envFrom": (
        {"envFrom": [from_map("config")], "env": [{"name": "A", "value": "mine"}]},
        {"A": "mine", "B": "2"},
    ),
    "a key of a config map": ({"env": [from_key("config", "B")]}, {"X": "2"}),
    "an optional key that is missing": ({"env": [from_key("config", "Z", optional=True)]}, {}),
    "the address": ({"env": [from_field("status.podIP")]}, {"X": "10.0.0.1"}),
    "all addresses": ({"env": [from_field("status.podIPs")]}, {"X": "10.0.0.1,fd00::1"}),
    "the node": ({"env": [from_field("spec.nodeName")]}, {"X": "node-1"}),
    "a label": ({"env": [from_field("metadata.labels['app']")]}, {"X": "x"}),
    "an annotation that is missing is empty": ({"env": [from_field("metadata.annotations['a']")]}, {"X": ""}),
    "a resource": (
        {
            "resources": {"limits": {"cpu": "2"}},
            "env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
        },
        {"X": "2"},
    ),
    "a variable of the config map in a value": (
        {"envFrom": [from_map("config")], "env": [{"name": "X", "value": "$(A)-$(B)"}]},
        {"A": "1", "B": "2", "X": "1-2"},
    ),
    "a variable that comes later stays as it is": (
        {"env": [{"name": "X", "value": "$(Y)"}, {"name": "Y", "value": "1"}]},
        {"X": "$(Y)", "Y": "1"},
    ),
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a config map": ({"envFrom": [from_map("missing")]}, 'configmap "missing" not found'),
    "a config map of a key": ({"env": [from_key("missing", "A")]}, 'configmap "missing" not found'),
    "a key": ({"env": [from_key("config", "Z")]}, "couldn't find key Z in configmap config"),
    "a field": ({"env": [from_field("status.nominatedNodeName")]}, "the pod has no status.nominatedNodeName"),
    "a source that nobody knows": ({"env": [{"name": "X", "valueFrom": {"fileKeyRef": {}}}]}, "fileKeyRef"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_container_starts_with(case: str) -> None:
    container, expected = CASES[case]
    assert environment(container, POD, READ) == expected


@pytest.mark.parametrize("case", REFUSED)
def test_a_container_does_not_start_without(case: str) -> None:
    container, message = REFUSED[case]
    with pytest.raises(ConfigurationError, match=message):
        environment(container, POD, READ)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$(Z)", "$(Z)"),
        ("a$$b", "a$b"),
        ("", ""),
    ],
)
def test_variables_are_expanded(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1"}) == expanded


def test_each_source_is_read_once() -> None:
    container = {
        "envFrom": [from_map("config"), {"secretRef": {"name": "secret"}}],
        "env": [from_key("config", "A"), from_key("other", "A")],
    }
    expected = [Source(CONFIG_MAP, "config"), Source(SECRET, "secret"), Source(CONFIG_MAP, "other")]
    assert sources(container) == expected
