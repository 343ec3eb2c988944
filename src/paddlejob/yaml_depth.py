"""Limits the nesting of YAML and the expansion of its aliases, before a loader runs.

libyaml's loader crashes on deep nesting, and a few lines of aliases can expand to more than fits into memory.
"""

from __future__ import annotations

from typing import Any

import yaml

MAX_DEPTH = 200
"""A pod template has about six levels."""
MAX_REPEATED_MIB = 8
"""Maximum size of all values added by aliases: 100,000 short values, or fewer long ones."""
VALUE_BYTES = 80
"""Size of a value in memory, in addition to its characters."""


def check_depth(text: str | bytes, loader: Any) -> None:
    """Raise RecursionError for a text that is nested too deeply or recursively, YAMLError for an invalid one.

    A text with too large aliases is invalid.
    """
    sizes: dict[str | None, int] = {}
    """Size of each anchor's value, after its end."""
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
            if len(open_values) > MAX_DEPTH:
                raise RecursionError
        elif isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor] = VALUE_BYTES + len(event.value)
            size += sizes[event.anchor]
