"""Runs helm for the tests of an installation."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster import ensure

Helm = Callable[..., str]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Run helm and give what it printed; raises CalledProcessError with stderr when it fails."""
    program = ensure(["helm"])["helm"]
    environment = {"HOME": str(tmp_path_factory.mktemp("helm")), "HELM_NAMESPACE": "paddle-system"}

    def run(*arguments: str | Path) -> str:
        command = [program, *arguments]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    return run
