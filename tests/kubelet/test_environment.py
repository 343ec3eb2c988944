"""A container's variables, as a kubelet resolves them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlejob.kubelet import (
    CONFIG_MAP,
    SECRET,
    ConfigError,
    Source,
    Sources,
    expand,
    references,
    resolve,
)

OBJECTS = {
    Source(CONFIG_MAP, "words"): {"A": b"1", "B": b"2", "not valid": b"3"},
    Source(SECRET, "hidden"): {"KEY": b"secret"},
}
SOURCES = Sources(
    pod={
        "metadata": {
            "name": "job-worker-0",
            "namespace": "there",
            "uid": "u1",
            "labels": {"app": "x"},
            "annotations": {"note": "y"},
        },
        "spec": {"nodeName": "node-1", "serviceAccountName": "default"},
        "status": {
            "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "hostIP": "172.0.0.1",
        },
    },
    find=OBJECTS.get,
    allocatable={"cpu": 8},
)


def value_of(origin, **container):
    return resolve({"env": [{"name": "X", "valueFrom": origin}], **container}, SOURCES)["X"]


EXPANSIONS = {
    "a known name": ("$(A)/x", "1/x"),
    "an unknown name stays": ("$(Z)", "$(Z)"),
    "an escaped dollar": ("$$(A)", "$(A)"),
    "two of them": ("$(A)$(B)", "12"),
    "a lone dollar": ("$A $ $(", "$A $ $("),
    "an empty name stays": ("$()", "$()"),
    "a value is not expanded again": ("$(C)", "$(A)"),
    "a name ends at the first parenthesis": ("$(basename $(A))", "$(basename $(A))"),
    "a name with an opening parenthesis": ("$((A)", "2"),
    "a shell's arithmetic": ("$((1 + 1))", "$((1 + 1))"),
    "a reference that does not end": ("$(A $$ $", "$(A $ $"),
}
VALUES = {"A": "1", "B": "2", "C": "$(A)", "(A": "2"}


@pytest.mark.parametrize(("text", "expected"), EXPANSIONS.values(), ids=EXPANSIONS)
def test_references(text, expected):
    assert expand(text, VALUES) == expected


def expanded_by_steps(text: str) -> str:
    """Expand as the kubelet does: one character after the other."""
    done, position = "", 0
    while position < len(text):
        following, end = text[position + 1 : position + 2], text.find(")", position)
        if text[position] != "$" or not following:
            done, position = done + text[position], position + 1
        elif following == "(" and end > 0:
            name = text[position + 2 : end]
            done, position = done + VALUES.get(name, f"$({name})"), end + 1
        else:
            done, position = done + ("$" if following == "$" else f"${following}"), position + 2
    return done


@given(text=st.text("$()AB ", max_size=20))
def test_references_of_any_text(text):
    assert expand(text, VALUES) == expanded_by_steps(text)


def test_variables_refer_to_earlier_ones_only():
    variables = [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "1"}, {"name": "C", "value": "$(B)"}]
    assert resolve({"env": variables}, SOURCES) == {"A": "$(B)", "B": "1", "C": "1"}


FIELDS = {
    "metadata.name": "job-worker-0",
    "metadata.namespace": "there",
    "metadata.uid": "u1",
    "metadata.labels['app']": "x",
    "metadata.annotations['note']": "y",
    "metadata.labels['none']": "",
    "metadata.labels": 'app="x"',
    "spec.nodeName": "node-1",
    "spec.serviceAccountName": "default",
    "status.podIP": "10.0.0.1",
    "status.podIPs": "10.0.0.1,fd00::1",
    "status.hostIP": "172.0.0.1",
    "status.hostIPs": "",
}


@pytest.mark.parametrize(("path", "expected"), FIELDS.items(), ids=FIELDS)
def test_fields_of_the_pod(path, expected):
    assert value_of({"fieldRef": {"fieldPath": path}}) == expected


RESOURCES = {
    "a limit": ({"limits": {"cpu": "2"}}, "limits.cpu", None, "2"),
    "half a core is rounded up": ({"limits": {"cpu": "500m"}}, "limits.cpu", None, "1"),
    "in thousandths": ({"limits": {"cpu": "500m"}}, "limits.cpu", "1m", "500"),
    "memory in mebibytes": ({"limits": {"memory": "1Gi"}}, "limits.memory", "1Mi", "1024"),
    "a request falls back to the limit": ({"limits": {"cpu": "3"}}, "requests.cpu", None, "3"),
    "no request is zero": ({}, "requests.cpu", None, "0"),
    "no limit is the node's": ({}, "limits.cpu", None, "8"),
    "what a node has none of is zero": ({}, "limits.nvidia.com/gpu", None, "0"),
}


@pytest.mark.parametrize(("resources", "path", "divisor", "expected"), RESOURCES.values(), ids=RESOURCES)
def test_resources_of_the_container(resources, path, divisor, expected):
    reference = {"resource": path, "divisor": divisor}
    assert value_of({"resourceFieldRef": reference}, resources=resources) == expected


def test_keys_of_config_maps_and_secrets():
    assert value_of({"configMapKeyRef": {"name": "words", "key": "A"}}) == "1"
    assert value_of({"secretKeyRef": {"name": "hidden", "key": "KEY"}}) == "secret"


def test_whole_objects_with_a_prefix_and_without_names_that_are_none():
    sources = [{"configMapRef": {"name": "words"}}, {"secretRef": {"name": "hidden"}, "prefix": "MY_"}]
    assert resolve({"envFrom": sources}, SOURCES) == {"A": "1", "B": "2", "MY_KEY": "secret"}


def test_a_variable_wins_over_a_whole_object():
    container = {"envFrom": [{"configMapRef": {"name": "words"}}], "env": [{"name": "A", "value": "own"}]}
    assert resolve(container, SOURCES)["A"] == "own"


def test_optional_objects_may_be_missing():
    container = {
        "envFrom": [{"configMapRef": {"name": "gone", "optional": True}}],
        "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k", "optional": True}}}],
    }
    assert resolve(container, SOURCES) == {}


MISSING = {
    "a config map": ({"configMapKeyRef": {"name": "gone", "key": "k"}}, 'configmap "gone" not found'),
    "a secret": ({"secretKeyRef": {"name": "gone", "key": "k"}}, 'secret "gone" not found'),
    "a key": (
        {"configMapKeyRef": {"name": "words", "key": "Z"}},
        "couldn't find key Z in ConfigMap there/words",
    ),
    "a field": ({"fieldRef": {"fieldPath": "spec.none"}}, "field label not supported: spec.none"),
    "a source": ({"otherRef": {}}, "no supported source: otherRef"),
}


@pytest.mark.parametrize(("origin", "sentence"), MISSING.values(), ids=MISSING)
def test_a_missing_source_is_reported_like_the_kubelet(origin, sentence):
    with pytest.raises(ConfigError) as missing:
        value_of(origin)
    assert sentence in str(missing.value)


def test_no_value_is_empty():
    assert resolve({"env": [{"name": "X"}]}, SOURCES) == {"X": ""}


def test_each_source_is_read_once():
    def key(name: str) -> dict[str, Any]:
        return {"name": "X", "valueFrom": {"configMapKeyRef": {"name": name, "key": "A"}}}

    container = {
        "envFrom": [{"configMapRef": {"name": "words"}}, {"secretRef": {"name": "hidden"}}],
        "env": [key("words"), key("other"), {"name": "Y", "value": "plain"}],
    }
    expected = [Source(CONFIG_MAP, "words"), Source(SECRET, "hidden"), Source(CONFIG_MAP, "other")]
    assert references(container) == expected
