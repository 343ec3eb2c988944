"""Prints an interpreter of every supported Python that this machine has, except the one that runs this."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST, NEWEST = 11, 13
"""Of 3.x; pyproject.toml names the oldest, deploy/docker/Dockerfile runs the newest."""
PYENV = Path.home() / ".pyenv" / "versions"


def others(running: int = sys.version_info.minor) -> Iterator[str]:
    """Give an interpreter of every supported version that is here and is not the running one."""
    for minor in range(OLDEST, NEWEST + 1):
        if minor != running and (found := next(filter(works, candidates(f"python3.{minor}")), None)):
            yield found


def candidates(name: str) -> Iterator[str]:
    """Give the places where an interpreter may be."""
    if found := shutil.which(name):
        yield found
    version = name.removeprefix("python")
    yield from (str(path) for path in sorted(PYENV.glob(f"{version}.*/bin/{name}")))


def works(python: str) -> bool:
    """Tell whether it runs and can make a virtualenv: pyenv has stand-ins that refuse to."""
    command = [python, "-c", "import ensurepip, venv"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    print("\n".join(others()))
