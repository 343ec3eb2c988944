"""Runs notebooks as Jupyter does, in a process of its own: Jupyter's packages warn about each other.

python notebooks.py NOTEBOOK DIRECTORY > EXECUTED
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"


class Cell:
    """What a cell has shown."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.source = "".join(body["source"])
        self._outputs = body["outputs"]

    @property
    def text(self) -> str:
        """What it has printed."""
        return "".join("".join(each["text"]) for each in self._outputs if each["output_type"] == "stream")

    def shown(self, kind: str) -> list[str]:
        """Return what it has displayed in one form."""
        data = [each.get("data", {}) for each in self._outputs]
        return ["".join(each[kind]) for each in data if kind in each]


def snapshot_of(cell: str) -> dict[str, Any]:
    """Return the job's data in the HTML of a cell."""
    page = re.search(r'srcdoc="([^"]*)"', cell)
    assert page, cell
    data = re.search(r'<script id="data"[^>]*>(.*?)</script>', html.unescape(page[1]))
    assert data, page[1]
    found: dict[str, Any] = json.loads(data[1])["snapshot"]
    return found


def executed(notebook: Path, directory: Path, env: Mapping[str, str] | None = None) -> list[Cell]:
    """Run a notebook to its end in a directory; return its code cells. Raises AssertionError if one fails."""
    done = subprocess.run(
        [sys.executable, __file__, str(notebook), str(directory)],
        env={**os.environ, "IPYTHONDIR": str(directory / ".ipython"), **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Cell(each) for each in json.loads(done.stdout)["cells"] if each["cell_type"] == "code"]


def written(path: Path, *cells: str) -> Path:
    """Write a notebook of code cells."""
    bodies = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        for number, source in enumerate(cells)
    ]
    path.write_text(json.dumps({"cells": bodies, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def _main(notebook: str, directory: str) -> None:
    import nbclient
    import nbformat

    read = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(read, timeout=300, resources={"metadata": {"path": directory}}).execute()
    sys.stdout.write(nbformat.writes(read))


if __name__ == "__main__":
    _main(*sys.argv[1:])
