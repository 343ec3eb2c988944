"""Real Paddles, of the oldest and of the newest version that the project knows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "paddle_env.py"


@pytest.fixture(scope="session", params=["2.6.2", "3.3.1"])
def interpreter(request) -> str:
    return paddle(request.param)


@pytest.fixture(scope="session")
def interpreter_with_servers() -> str:
    """Return a Paddle with the parameter server, which later wheels come without."""
    return paddle("2.6.2")


def paddle(version: str) -> str:
    found = subprocess.run([sys.executable, SCRIPT, version], capture_output=True, text=True, check=True)
    return found.stdout.strip()
