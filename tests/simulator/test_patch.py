from __future__ import annotations

import copy
from typing import Any

import pytest

from paddlejob.kube.errors import ApiError, InvalidError
from simkube.apiserver.rules.patch import json_patch, merge, strategic

MERGES = {
    "a value is added": ({}, {"a": 1}, {"a": 1}),
    "a value is replaced": ({"a": 1}, {"a": 2}, {"a": 2}),
    "null removes": ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    "null of what is not there does nothing": ({}, {"a": None}, {}),
    "objects merge": ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
    "an object replaces a value": ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
    "lists replace": ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    "nulls within a new object vanish": ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
}

OPERATIONS: dict[str, tuple[Any, list[dict[str, Any]], Any]] = {
    "add to an object": ({}, [{"op": "add", "path": "/a", "value": 1}], {"a": 1}),
    "add replaces": ({"a": 1}, [{"op": "add", "path": "/a", "value": 2}], {"a": 2}),
    "insert into a list": ([1, 3], [{"op": "add", "path": "/1", "value": 2}], [1, 2, 3]),
    "append to a list": ([1], [{"op": "add", "path": "/-", "value": 2}], [1, 2]),
    "add deep in a list": ([{"a": 1}], [{"op": "add", "path": "/0/b", "value": 2}], [{"a": 1, "b": 2}]),
    "replace the whole": ({"a": 1}, [{"op": "replace", "path": "", "value": 2}], 2),
    "replace in a list": ([1, 2], [{"op": "replace", "path": "/0", "value": 3}], [3, 2]),
    "remove": ({"a": {"b": 1, "c": 2}}, [{"op": "remove", "path": "/a/b"}], {"a": {"c": 2}}),
    "copy": ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    "move": ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
    "escaped names": ({"a/b~c": 1}, [{"op": "remove", "path": "/a~1b~0c"}], {}),
    "a test that holds": ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
}

REFUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "a test that does not hold": ({"a": 1}, {"op": "test", "path": "/a", "value": 2}),
    "a missing parent": ({}, {"op": "add", "path": "/a/b", "value": 1}),
    "a missing value": ({}, {"op": "remove", "path": "/a"}),
    "an index past the end": ([1], {"op": "add", "path": "/5", "value": 1}),
    "an index that is none": ([1], {"op": "remove", "path": "/x"}),
    "no pointer": ({}, {"op": "add", "path": "a", "value": 1}),
    "an unknown operation": ({}, {"op": "increase", "path": "/a"}),
    "no operation": ({}, {"path": "/a"}),
}

STRATEGIC: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "containers merge by name": (
        {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]},
        {"containers": [{"name": "b", "image": "3"}, {"name": "c"}]},
        {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "3"}, {"name": "c"}]},
    ),
    "an element is deleted": (
        {"env": [{"name": "a"}, {"name": "b"}]},
        {"env": [{"name": "a", "$patch": "delete"}]},
        {"env": [{"name": "b"}]},
    ),
    "a list is replaced": (
        {"env": [{"name": "a"}]},
        {"env": [{"$patch": "replace"}, {"name": "b"}]},
        {"env": [{"name": "b"}]},
    ),
    "an object is replaced": ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
    "lists without a key are replaced": ({"args": [1]}, {"args": [2]}, {"args": [2]}),
    "finalizers merge": ({"finalizers": ["a"]}, {"finalizers": ["a", "b"]}, {"finalizers": ["a", "b"]}),
    "a finalizer is deleted": (
        {"finalizers": ["a", "b"]},
        {"$deleteFromPrimitiveList/finalizers": ["a"]},
        {"finalizers": ["b"]},
    ),
    "ports of a service go by port": (
        {"ports": [{"port": 1, "name": "a"}]},
        {"ports": [{"port": 1, "name": "b"}]},
        {"ports": [{"port": 1, "name": "b"}]},
    ),
    "null removes": ({"a": 1}, {"a": None}, {}),
}


@pytest.mark.parametrize("case", MERGES)
def test_merge(case: str) -> None:
    target, patch, result = MERGES[case]
    before = copy.deepcopy(target)
    assert merge(target, patch) == result
    assert target == before


@pytest.mark.parametrize("case", OPERATIONS)
def test_json_patch(case: str) -> None:
    target, operations, result = OPERATIONS[case]
    before = copy.deepcopy(target)
    assert json_patch(target, operations) == result
    assert target == before


@pytest.mark.parametrize("case", REFUSED)
def test_json_patches_that_do_not_fit(case: str) -> None:
    target, operation = REFUSED[case]
    with pytest.raises(InvalidError):
        json_patch(target, [operation])


@pytest.mark.parametrize("case", STRATEGIC)
def test_strategic(case: str) -> None:
    target, patch, result = STRATEGIC[case]
    before = copy.deepcopy(target)
    assert strategic(target, patch) == result
    assert target == before


def test_a_strategic_element_without_its_key_is_refused() -> None:
    with pytest.raises(ApiError, match="merge key"):
        strategic({}, {"containers": [{"image": "x"}]})
