"""Reads YAML as `kubectl` does: keys may not repeat, and dates stay text. Errors name the line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from paddlejob.local.errors import InputError
from paddlejob.yaml_depth import check_depth

_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The fast loader, without YAML's own idea of dates."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def load_all(text: str, source: str) -> list[Any]:
    """Return the documents of a text. Raises InputError, which calls the text `source`."""
    try:
        check_depth(text, _Loader)
        return list(_documents(text))
    except RecursionError as error:
        raise InputError(f"{source} is nested too deeply") from error
    except yaml.YAMLError as error:
        raise InputError(f"{source} is not valid YAML: {_sentence(error, text)}") from error
    except ValueError as error:
        # A number or a date that its constructor refuses.
        raise InputError(f"{source} is not valid YAML: {error}") from error


def _documents(text: str) -> Iterator[Any]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            _refuse_repeated_keys(node, set())
            yield loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_repeated_keys(node: yaml.Node, seen: set[int]) -> None:
    if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            _refuse_repeated_keys(each, seen)
        return
    lines: dict[Any, int] = {}
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in lines:
                problem = f"{key.value} is set twice, here and in line {lines[key.value]}; remove one of them"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        _refuse_repeated_keys(value, seen)


def _sentence(error: yaml.YAMLError, text: str) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    line = next(iter(text.splitlines()[mark.line : mark.line + 1]), "")
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return f"line {mark.line + 1} is indented with a tab; use spaces"
    return f"line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', error)}"
