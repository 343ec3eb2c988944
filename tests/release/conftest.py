"""What a release consists of, built from the files as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster import ensure
from scripts.release import distributions, source

EPOCH = 1_700_000_000


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The files of this clone that are, or can be, committed: as a tree that git can export."""
    index = {**os.environ, "GIT_INDEX_FILE": str(tmp_path_factory.mktemp("git") / "index")}
    for command in (["read-tree", "HEAD"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=source.ROOT, env=index, check=True)
    written = subprocess.run(
        ["git", "write-tree"], cwd=source.ROOT, env=index, check=True, capture_output=True
    )
    return written.stdout.decode().strip()


@pytest.fixture(scope="session")
def wheel(tree: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source.export(folder / "source", tree)
    return distributions.build_wheel(folder / "source", folder / "dist", EPOCH)


@pytest.fixture(scope="session")
def clean_venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a virtualenv in which only the wheel was installed."""
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", source.ROOT / "constraints.txt", wheel], check=True)
    return folder / "bin"


@pytest.fixture(scope="session")
def helm() -> Path:
    return ensure(["helm"])["helm"]


@pytest.fixture
def run(clean_venv: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program of that virtualenv in an empty folder, with nothing of this clone in its environment."""

    def run(program: str, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{clean_venv}:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
        return subprocess.run(
            [clean_venv / program, *map(str, arguments)],
            cwd=tmp_path,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run
