"""Files of the repository that the package carries: manifests, the chart, the examples, the documentation.

In a clone these are links; a wheel has the files themselves.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

MANIFESTS, CHART, EXAMPLES, DOCS = "v1", "chart", "examples", "docs"
_MADE = ("__pycache__", "data")
"""What running the examples leaves in a clone."""


def folder(name: str) -> Traversable:
    """Return one of the folders."""
    return resources.files(__name__).joinpath(name)


def write(source: Traversable, target: Path) -> None:
    """Write a file, or a folder with all its files, which must not exist. Raises OSError."""
    if source.is_file():
        with target.open("xb") as opened:
            opened.write(source.read_bytes())
        return
    target.mkdir(parents=True)
    for each in source.iterdir():
        if each.name not in _MADE:
            write(each, target / each.name)
