"""JSON that is nested too deeply to be decoded: nothing else is lost, in linear time."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import msgspec
import pytest

from kube.deep_json import DEPTHS, nested
from paddlejob.api.meta import ObjectMeta, View
from paddlejob.kube import errors, responses
from paddlejob.kube.decoding import MAX_DEPTH, decode, is_too_deep, without_deeper
from paddlejob.kube.transport import Response


class Named(View, frozen=True):
    metadata: ObjectMeta


def an_object(levels: int) -> bytes:
    metadata = b'{"name":"demo","managedFields":[%s],"resourceVersion":"7"}' % nested(levels)
    return b'{"spec":{"}\\"":%s},"metadata":%s,"status":{"phase":"Failed"}}' % (nested(levels), metadata)


@pytest.mark.parametrize("levels", DEPTHS)
def test_shallow_fields_are_read_at_any_depth_of_the_rest(levels):
    found = decode(msgspec.json.Decoder(Named), an_object(levels))
    assert (found.metadata.name, found.metadata.resource_version) == ("demo", "7")
    assert responses.decode(an_object(levels), responses.Written).metadata.resource_version == "7"


@pytest.mark.parametrize("levels", DEPTHS)
def test_an_item_that_lost_a_part_is_still_too_deep(levels):
    page = b'{"metadata":{},"items":[%s,%s]}' % (an_object(levels), an_object(4))
    items = responses.decode_list(page, msgspec.Raw).items
    assert [is_too_deep(item) for item in items] == [True, False]
    assert bytes(items[1]) == an_object(4)


@pytest.mark.parametrize("leaf", [b"{}", b"[]", b"1", b'"{}[]"', b'{"a":1}'])
@pytest.mark.parametrize("levels", range(MAX_DEPTH - 3, MAX_DEPTH + 3))
def test_how_deep_an_object_is_does_not_depend_on_how_many_are_empty(levels, leaf):
    empties = b",".join([b'"f:name":{}'] * 200)
    text = b'{"a":' * levels + leaf + b"}" * levels
    beside = b"{%s,%s}" % (empties, text.removeprefix(b"{").removesuffix(b"}"))
    assert is_too_deep(text) == is_too_deep(beside) == (without_deeper(text, MAX_DEPTH) is not text)


@pytest.mark.parametrize("levels", [1100, 9999])
def test_plain_json_is_read_whole_or_not_at_all(levels, monkeypatch):
    def too_deep(_: type) -> Any:
        class Decoder:
            def decode(self, body: bytes) -> None:
                raise RecursionError("maximum recursion depth exceeded")

        return Decoder()

    monkeypatch.setattr(responses, "_decoder", too_deep)
    with pytest.raises(errors.UndecodableError, match="recursion depth"):
        responses.decode(an_object(levels), dict)
    with pytest.raises(errors.UndecodableError, match="recursion depth"):
        responses.decode_list(an_object(levels), dict)
    refused = responses.error_from(Response(500, an_object(levels)))
    assert isinstance(refused, errors.ServerError)


def test_the_limit_is_exact():
    text = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert not is_too_deep(text)
    assert is_too_deep(b"[" + text + b"]")


@pytest.mark.parametrize("broken", [b"", b"}", b"]]]{", b'{"a":"', b'"\\', b"[" * 9000, b"]" * 9000, b"\xff"])
def test_text_that_is_not_json_is_a_decode_error(broken):
    with pytest.raises(errors.UndecodableError):
        responses.decode(broken, responses.Written)


@pytest.mark.parametrize("seed", range(200))
def test_exactly_the_arrays_and_objects_below_the_limit_are_cut(seed):
    rng = random.Random(seed)
    value, levels = _value(rng, 8), rng.randrange(1, 8)
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1])).encode()
    cut = without_deeper(text, levels)
    assert json.loads(cut) == _cut(value, levels)
    assert (cut is text) == (json.loads(cut) == value)


def _value(rng: random.Random, levels: int) -> Any:
    kind = rng.randrange(4) if levels else 0
    if kind == 0:
        return "".join(rng.choices('"\\[]{},: aé', k=rng.randrange(6)))
    if kind == 1:
        return rng.choice([None, True, -1.5e3, 0])
    size = rng.randrange(4)
    if kind == 2:
        return [_value(rng, levels - 1) for _ in range(size)]
    return {f'{number}"]\\': _value(rng, levels - 1) for number in range(size)}


def _cut(value: Any, levels: int) -> Any:
    if not isinstance(value, list | dict):
        return value
    if levels == 0:
        return None
    if isinstance(value, list):
        return [_cut(item, levels - 1) for item in value]
    return {name: _cut(item, levels - 1) for name, item in value.items()}


def test_the_cost_is_linear():
    """A string, a hundred chains of 10,000 levels, brackets in strings: none is read more than once."""
    for part in (b'"' + b"x" * 20_000 + b'"', nested(10_000), b'"' + b'[\\\\\\"' * 5_000 + b'"'):
        once = _seconds(b"[" + b",".join([part] * 10) + b"]")
        more = _seconds(b"[" + b",".join([part] * 40) + b"]")
        assert more < 12 * once + 0.005


def test_an_object_of_the_largest_size_is_read_in_a_moment():
    padding = b'"' + b"x" * 1_400_000 + b'"'
    assert _seconds(b'{"spec":%s,"padding":%s}' % (nested(9_998), padding)) < 0.1


def _seconds(text: bytes) -> float:
    def once() -> float:
        started = time.process_time()
        without_deeper(text, 200)
        return time.process_time() - started

    return min(once() for _ in range(5))
