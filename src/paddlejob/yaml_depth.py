"""Limits on the nesting of YAML and on the repetition by aliases, checked before a loader runs.

The loader of libyaml crashes on deep nesting, and a few lines of aliases can stand for more objects or text
than fits into memory.
"""

from __future__ import annotations

from typing import Any

import yaml

DEEPEST = 200
"""A pod template is nested half a dozen levels deep."""
MAX_REPEATED_MIB = 8
"""Size of all values that aliases may add to a text: 100,000 short values, or fewer long ones."""
VALUE_BYTES = 80
"""Size of a value in memory, in addition to its characters."""


def check_depth(text: str | bytes, loader: Any) -> None:
    """Raise RecursionError for a text that is nested too deeply or in itself, YAMLError for a broken one.

    A text in which aliases repeat too much counts as broken.
    """
    sizes: dict[str | None, int] = {}
    """Size of the value that each anchor stands for, once the value has ended."""
    open_values: list[tuple[str | None, int]] = []
    size = repeated = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_values.pop()
            sizes[anchor] = size - before
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_values):
                raise RecursionError
            repeated += sizes.get(event.anchor, VALUE_BYTES)
            size += sizes.get(event.anchor, VALUE_BYTES)
            if repeated > MAX_REPEATED_MIB * 1024**2:
                raise yaml.MarkedYAMLError(problem=f"aliases repeat more than {MAX_REPEATED_MIB} MiB")
        elif isinstance(event, yaml.CollectionStartEvent):
            open_values.append((event.anchor, size))
            size += VALUE_BYTES
            if len(open_values) > DEEPEST:
                raise RecursionError
        elif isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor] = VALUE_BYTES + len(event.value)
            size += sizes[event.anchor]
