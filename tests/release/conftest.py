"""What a release consists of, built from the files as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
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
def pipx_programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of the wheel as pipx installs them, which has a virtualenv of its own."""
    folder = tmp_path_factory.mktemp("pipx")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "pipx==1.7.1"], check=True)
    places = {"PIPX_HOME": str(folder / "home"), "PIPX_BIN_DIR": str(folder / "bin")}
    pinned = {"PIP_CONSTRAINT": str(source.ROOT / "constraints.txt")}
    pipx = [python, "-m", "pipx", "install", "--python", sys.executable, wheel]
    subprocess.run(pipx, env={**os.environ, **places, **pinned}, check=True)
    return folder / "bin"


@pytest.fixture(scope="session")
def helm() -> Path:
    return ensure(["helm"])["helm"]


@pytest.fixture
def run(clean_venv: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program of that virtualenv in an empty folder, with nothing of this clone in its environment."""

    return partial(run_program, clean_venv, tmp_path)


def run_program(
    programs: Path, folder: Path, program: str, *arguments: object, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    return subprocess.run(
        [programs / program, *map(str, arguments)],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
