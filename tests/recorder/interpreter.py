"""Programs with the recorder on their path, in interpreters of their own, as a pod starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import paddlejob.recorder

PACKAGE = Path(paddlejob.recorder.__file__).parent
SITE = PACKAGE / "site"


def run(
    program: str, directory: Path, *, python: str = sys.executable, file: str = "progress", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a directory; neither this project nor its tests are on the path."""
    variables = {"PYTHONPATH": str(SITE), "PADDLEJOB_PROGRESS_FILE": str(directory / file), **environment}
    return subprocess.run(
        [python, "-c", program], cwd=directory, env=variables, capture_output=True, text=True, check=False
    )


def reports(directory: Path, file: str = "progress") -> list[dict]:
    return [json.loads(line) for line in (directory / file).read_text().splitlines()]


def on_path(directory: Path) -> str:
    return f"{SITE}{os.pathsep}{directory}"
