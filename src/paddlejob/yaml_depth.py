"""How deeply YAML is nested, and how much its aliases repeat: neither may use up this process.

The loader of libyaml crashes on what is nested too deeply, and a few lines of aliases stand for more objects
than any memory holds.
"""

from __future__ import annotations

from typing import Any

import yaml

DEEPEST = 200
"""A pod template is nested half a dozen levels deep, and whatever an API server accepts not much deeper."""
MOST_REPEATED = 100_000
"""How many values aliases may add to a text."""


def check_depth(text: str | bytes, loader: Any) -> None:
    """Raise RecursionError for a text that is nested too deeply or in itself, YAMLError for a broken one.

    A text in which aliases repeat too much counts as broken.
    """
    sizes: dict[str | None, int] = {}
    """How many values each anchor stands for, once its value has ended."""
    open_values: list[tuple[str | None, int]] = []
    size = repeated = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_values.pop()
            sizes[anchor] = size - before
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_values):
                raise RecursionError
            repeated += sizes.get(event.anchor, 1)
            size += sizes.get(event.anchor, 1)
            if repeated > MOST_REPEATED:
                raise yaml.MarkedYAMLError(problem=f"aliases repeat more than {MOST_REPEATED:,} values")
        elif isinstance(event, yaml.NodeEvent):
            size += 1
            if isinstance(event, yaml.CollectionStartEvent):
                open_values.append((event.anchor, size - 1))
                if len(open_values) > DEEPEST:
                    raise RecursionError
            else:
                sizes[event.anchor] = 1
