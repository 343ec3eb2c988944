"""How deeply YAML is nested: the loader of libyaml crashes on what is nested too deeply."""

from __future__ import annotations

from typing import Any

import yaml

DEEPEST = 200
"""A pod template is nested half a dozen levels deep, and whatever an API server accepts not much deeper."""


def check_depth(text: str | bytes, loader: Any) -> None:
    """Raise RecursionError for a text that is nested too deeply to be loaded, YAMLError for a broken one."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise RecursionError
