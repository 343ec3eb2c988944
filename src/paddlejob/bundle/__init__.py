"""Repository files in the package: manifests, Helm chart, examples and documentation.

In a clone they are symbolic links; a wheel contains the files.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

MANIFESTS, CHART, EXAMPLES, DOCS = "v1", "chart", "examples", "docs"
_GENERATED = ("__pycache__", "data")
"""Directories that appear in a clone when the examples run."""


def folder(name: str) -> Traversable:
    return resources.files(__name__).joinpath(name)


def write(source: Traversable, target: Path) -> None:
    """Copy a file or a folder; the target must not exist. Raises OSError."""
    if source.is_file():
        with target.open("xb") as opened:
            opened.write(source.read_bytes())
        return
    target.mkdir(parents=True)
    for each in source.iterdir():
        if each.name not in _GENERATED:
            write(each, target / each.name)
