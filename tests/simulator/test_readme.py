"""The example in the README of the simulator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[2] / "simkube" / "README.md"


def test_the_example_runs_as_described():
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    variables: dict[str, Any] = {}
    exec(example, variables)
    assert f"`phase` is `{variables['phase']}`" in README.read_text()
    assert variables["phase"] == "Succeeded"


def test_all_files_that_it_names_exist():
    root = README.parents[1]
    named = re.findall(r"`(tests/[\w/.]+)`", README.read_text())
    assert len(named) > 4
    assert not [name for name in named if not (root / name).exists()]
