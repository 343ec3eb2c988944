"""Whoever wants to change something finds the place: every path in the documents for contributors exists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = (ROOT, ROOT / "src" / "paddlejob", ROOT / "tests")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?|[\w.-]+/")


def exists(path: str) -> bool:
    return any((room / path).exists() for room in ROOMS)


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md"])
def test_every_path_that_a_document_names_exists(document):
    text = (ROOT / document).read_text()
    named = {word for word in re.findall(r"`([^`\n]+)`", text) if PATH.fullmatch(word)}
    assert len(named) > 2
    assert sorted(path for path in named if not exists(path)) == []


@pytest.mark.parametrize("header", ["| subject | place |", "| change | files |"])
def test_every_row_of_a_map_leads_somewhere(header):
    table = (ROOT / "CONTRIBUTING.md").read_text().split(f"{header}\n|---|---|\n")[1].partition("\n\n")[0]
    places = {row: re.findall(r"`([^`]+)`", row.split("|")[2]) for row in table.splitlines()}
    assert len(places) >= 10
    assert [row for row, found in places.items() if not any(map(exists, found))] == []


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_and_make_target_exists(document):
    text = (ROOT / document).read_text()
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("https:")]
    assert [link for link in links if not (ROOT / link).exists()] == []
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z0-9-]+)", text)) - targets == set()


TOPS = ("src", "simkube", "devcluster", "scripts", "bench")
MODULES = [path for top in TOPS for path in (ROOT / top).rglob("*.py")]
MAX_LINES, MAX_MODULES = 500, 15


def test_no_module_and_no_package_is_too_large_to_be_read():
    assert len(MODULES) > 200
    assert [path for path in MODULES if len(path.read_text().splitlines()) > MAX_LINES] == []
    packages = Counter(path.parent for path in MODULES)
    assert {str(package): count for package, count in packages.items() if count > MAX_MODULES} == {}
