"""The wheel and the sdist: complete, and the same bytes wherever they are built."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts.release import distributions, source
from tests.release.conftest import EPOCH

pytestmark = [pytest.mark.tools, pytest.mark.timeout(600)]

CARRIED = {
    "deploy/v1": "bundle/v1",
    "deploy/helm/paddlejob": "bundle/chart",
    "examples": "bundle/examples",
    "docs": "bundle/docs",
}
LEFT_OUT = ("examples/notebooks/", "examples/README.md", "examples/.gitignore")


def build(tree: str, folder: Path, umask: int) -> list[Path]:
    before = os.umask(umask)
    try:
        source.export(folder / "source", tree)
        builders = (distributions.build_wheel, distributions.build_sdist)
        return [make(folder / "source", folder / "dist", EPOCH) for make in builders]
    finally:
        os.umask(before)


def test_two_builds_in_two_folders_are_the_same_bytes(tree, tmp_path):
    first = build(tree, tmp_path / "one", 0o022)
    second = build(tree, tmp_path / "a longer name" / "two", 0o077)
    assert [path.name for path in first] == [path.name for path in second]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_the_sdist_builds_the_same_wheel(tree, wheel, tmp_path):
    [_, sdist] = build(tree, tmp_path, 0o022)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert {path.name for path in unpacked.iterdir()} == {
        "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "src", "MANIFEST.in",
    }  # fmt: skip
    rebuilt = distributions.build_wheel(unpacked, tmp_path / "again", EPOCH)
    assert contents(rebuilt) == contents(wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_carries_what_a_user_needs_and_nothing_else(wheel):
    found = contents(wheel)
    packages = {name.split("/")[1] for name in found if name.startswith("paddlejob/") and name.count("/") > 1}
    assert {"bundle", "cli", "core", "dashboard", "operator", "recorder"} <= packages
    assert {name.split("/")[0] for name in found} == {
        "paddlejob",
        wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info",
    }
    for folder, place in CARRIED.items():
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", folder],
            cwd=source.ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        files = [each for each in listed.stdout.split() if not each.startswith(LEFT_OUT)]
        assert files
        for file in files:
            assert (
                found[f"paddlejob/{place}/{Path(file).relative_to(folder)}"]
                == (source.ROOT / file).read_bytes()
            )
        carried = [name for name in found if name.startswith(f"paddlejob/{place}/")]
        assert len(carried) == len(files)


def test_the_wheel_carries_every_file_that_the_package_reads(wheel):
    found = contents(wheel)
    package = source.ROOT / "src" / "paddlejob"
    data = [
        path for folder in ("dashboard/static", "recorder/site") for path in (package / folder).rglob("*")
    ]
    assert len(data) > 20
    for path in data:
        if path.is_file() and "__pycache__" not in path.parts:
            assert found[f"paddlejob/{path.relative_to(package)}"] == path.read_bytes()
