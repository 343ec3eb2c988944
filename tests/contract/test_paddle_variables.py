"""The source of Paddle and its kits reads no variable that the project does not know."""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract import wheels
from contract.paddle_variables import KNOWN, is_covered, variables_read
from scripts import paddle_env

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "environment.md"
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
Read = Callable[[], frozenset[str]]

pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence")  # in the source of the kits


def ours() -> frozenset[str]:
    """Return the variables that pods get; another test compares the page with the code."""
    return frozenset(ROW.findall(PAGE.read_text()))


def paddle(version: str) -> frozenset[str]:
    packages = paddle_env.ensure(version).parents[1].glob("lib/python*/site-packages")
    folder = next(packages) / "paddle"
    libraries = (path for path in folder.rglob("*.so*") if not path.is_symlink() and path.stat().st_size)
    return _covered(path.read_text() for path in folder.rglob("*.py")).union(*map(named_in, libraries))


def named_in(library: Path) -> set[str]:
    """Return the names of variables among the texts in a library; the compiler inlines some texts."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return {found[1].decode() for found in re.finditer(rb"\0(PADDLE_[A-Z_]+)(?=\0)", content)}


def kit(requirement: str) -> frozenset[str]:
    """Read the wheel of a kit without its dependencies."""
    with wheels.opened(requirement) as files:
        return _covered(files.read(name).decode() for name in files.namelist() if name.endswith(".py"))


def _covered(sources: Iterator[str]) -> frozenset[str]:
    return frozenset(name for source in sources for name in variables_read(source) if is_covered(name))


SOURCES: dict[str, Read] = {
    **{
        f"paddle {version}": lambda version=version: paddle(version)
        for version in ("2.6.2", "3.0.0", "3.3.1")
    },
    **{wheel: lambda wheel=wheel: kit(wheel) for wheel in ("paddleformers==1.2.0", "erniekit==1.3.0")},
}


@pytest.fixture(scope="module")
def reads() -> dict[str, frozenset[str]]:
    return {source: read() for source, read in SOURCES.items()}


@pytest.mark.paddle
@pytest.mark.timeout(600)
@pytest.mark.parametrize("source", SOURCES)
def test_every_variable_is_set_or_listed(source, reads):
    """A new variable belongs into core/paddle_env.py and the page, or into the list with a reason."""
    selected = {name for name in reads[source] if name.startswith("FLAGS_selected_")}
    assert reads[source] - selected - ours() - KNOWN.keys() == set()


@pytest.mark.paddle
@pytest.mark.timeout(600)
def test_every_listed_variable_is_read(reads):
    assert KNOWN.keys() - frozenset().union(*reads.values()) == set()


def test_no_variable_is_both_set_and_listed():
    assert ours() & KNOWN.keys() == set()
    assert [name for name in KNOWN if not is_covered(name)] == []


def test_reads_are_found_in_source():
    source = """
env_args_mapping = {"PADDLE_A": ("a", str)}
b = os.getenv("PADDLE_B", "0")
c = os.environ["PADDLE_C"]
d = "PADDLE_D" in ctx.envs
e = self.envs.get("PADDLE_E")
os.environ["PADDLE_WRITTEN"] = "1"
other = {"PADDLE_OTHER": 1}["PADDLE_OTHER"]
"""
    assert sorted(variables_read(source)) == [f"PADDLE_{letter}" for letter in "ABCDE"]
    assert not is_covered("FLAGS_use_stride_kernel")


def test_names_are_found_in_libraries(tmp_path):
    library = tmp_path / "libpaddle.so"
    library.write_bytes(b"\x7fELF\0PADDLE_A\0PADDLE_B\0cannot read PADDLE_C\0PADDLE_D is wrong\0")
    assert named_in(library) == {"PADDLE_A", "PADDLE_B"}
