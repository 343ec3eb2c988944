"""Programs that only the tests of an installation need: helm, and an API server of the old days."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster import ensure

Helm = Callable[..., str]

PROGRAM_OF = {"helm": "helm", "old_server": "apiextensions-apiserver"}
"""Fixtures and the programs that they run."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test: a first build takes minutes, a test's time limit does not."""
    used = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    needed = [program for fixture, program in PROGRAM_OF.items() if fixture in used]
    if not needed or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        ensure(needed)


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
