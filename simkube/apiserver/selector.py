"""Label and field selectors, as lists and watches take them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from paddlejob.api.meta import JsonObject
from simkube.apiserver import refusals

Matches = Callable[[JsonObject], bool]
"""Returns whether an object is selected."""

_EMPTY: Mapping[str, str] = {}
_REQUIREMENT = re.compile(
    r"""\s*(?:
        !\s*(?P<absent>[^\s!=<>(),]+)
      | (?P<key>[^\s!=<>(),]+)\s*(?:
            (?P<set>(?<=\s)(?:in|notin))\s*\((?P<choices>[^()]*)\)
          | (?P<operator>==|!=|=|>|<)\s*(?P<value>[^\s!=<>(),]*)
        )?
    )\s*""",
    re.VERBOSE,
)


@lru_cache(maxsize=1024)
def select(label_selector: str, field_selector: str, field_names: frozenset[str]) -> Matches | None:
    """Return the test for two selectors, None when they select everything.

    Raises ApiError (400) for a selector that does not parse, or a field that this kind is not selected by.
    """
    tests = [*_label_tests(label_selector), *_field_tests(field_selector, field_names)]
    match tests:
        case []:
            return None
        case [only]:
            return only
        case _:
            return lambda body: all(test(body) for test in tests)


def _label_tests(selector: str) -> list[Matches]:
    tests, position = [], 0
    while position < len(selector.rstrip()):
        found = _REQUIREMENT.match(selector, position)
        ends = found is not None and (found.end() == len(selector) or selector[found.end()] == ",")
        if found is None or not ends:
            raise refusals.bad_request(
                f"unable to parse requirement: found '{selector[position:]}', "
                "expected: in, notin, =, ==, !=, gt, lt"
            )
        tests.append(_label_test(found))
        position = found.end() + 1
    return tests


def _label_test(found: re.Match[str]) -> Matches:
    if found["absent"]:
        return _without_label(found["absent"])
    key = found["key"]
    if found["set"]:
        choices = frozenset(choice.strip() for choice in found["choices"].split(","))
        return _label_in(key, choices) if found["set"] == "in" else _label_not_in(key, choices)
    value = found["value"]
    match found["operator"]:
        case "=" | "==":
            return _label_in(key, frozenset([value]))
        case "!=":
            return _label_not_in(key, frozenset([value]))
        case ">" | "<" as comparison:
            return _label_compared(key, value, greater=comparison == ">")
        case _:
            return lambda body: key in _labels(body)


def _labels(body: JsonObject) -> Mapping[str, str]:
    labels: Mapping[str, str] = body["metadata"].get("labels") or _EMPTY
    return labels


def _without_label(key: str) -> Matches:
    return lambda body: key not in _labels(body)


def _label_in(key: str, choices: frozenset[str]) -> Matches:
    return lambda body: _labels(body).get(key) in choices


def _label_not_in(key: str, choices: frozenset[str]) -> Matches:
    return lambda body: _labels(body).get(key) not in choices


def _label_compared(key: str, limit: str, *, greater: bool) -> Matches:
    if not re.fullmatch(r"-?\d+", limit):
        raise refusals.bad_request(f"for 'Gt', 'Lt' operators, the value must be an integer: '{limit}'")

    def compare(body: JsonObject) -> bool:
        text = _labels(body).get(key, "")
        if not re.fullmatch(r"-?\d+", text):
            return False
        return int(text) > int(limit) if greater else int(text) < int(limit)

    return compare


def _field_tests(selector: str, field_names: frozenset[str]) -> list[Matches]:
    return [_field_test(term.strip(), field_names) for term in selector.split(",") if term.strip()]


def _field_test(term: str, field_names: frozenset[str]) -> Matches:
    found = re.fullmatch(r"([^!=]+)(!=|==|=)(.*)", term)
    if found is None:
        raise refusals.bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    name, operator, wanted = found.groups()
    if name not in field_names:
        raise refusals.bad_request(f"field label not supported: {name}")
    path = name.split(".")
    if operator == "!=":
        return lambda body: _field(body, path) != wanted
    return lambda body: _field(body, path) == wanted


def _field(body: JsonObject, path: list[str]) -> str:
    value: Any = body
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
