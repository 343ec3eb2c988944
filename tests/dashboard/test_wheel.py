"""The pages in the wheel: all files with their licences, and small."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from paddlejob.dashboard.pages import STATIC

pytestmark = [pytest.mark.tools, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PLACE = "paddlejob/dashboard/static/"
MAX_BYTES = 120 * 1024


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the pages in a wheel that was built from this source, by their paths."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", folder / "dist", folder], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name.removeprefix(PLACE) for name in archive.namelist() if name.startswith(PLACE)]
        return {name: archive.read(f"{PLACE}{name}") for name in names}


def test_the_wheel_has_every_file_of_the_pages_and_no_other(pages):
    wanted = {
        str(path.relative_to(STATIC)): path.read_bytes() for path in STATIC.rglob("*") if path.is_file()
    }
    assert {"index.html", "app.js", "style.css", "vendor/preact.js"} <= wanted.keys()
    assert pages == wanted


def test_the_wheel_has_the_licence_of_each_vendored_file_beside_it(pages):
    vendored = [Path(name) for name in pages if name.startswith("vendor/") and name.endswith((".js", ".css"))]
    assert len(vendored) >= 5
    for path in vendored:
        licence = pages[str(path.with_name(f"{path.stem.partition('-')[0]}.LICENSE"))]
        assert b"Copyright" in licence or b"copyright" in licence


def test_the_pages_in_the_wheel_are_small(pages):
    served = {name: each for name, each in pages.items() if not name.endswith((".LICENSE", ".md"))}
    assert sum(len(gzip.compress(each)) for each in served.values()) <= MAX_BYTES
