"""Whoever wants to change something finds the place: every path in the documents for contributors exists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = (ROOT, ROOT / "src" / "paddlejob")
DOCUMENTS = ("CONTRIBUTING.md", "docs/architecture.md")
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")


def map_rows(document: str) -> list[str]:
    """Give the rows of the table that says where to change what."""
    text = (ROOT / document).read_text()
    table = text.split("| to change | go to |\n|---|---|\n")[1].partition("\n\n")[0]
    return table.splitlines()


def paths(row: str) -> list[str]:
    places = [place for place in re.findall(r"`([^`]+)`", row.split("|")[2]) if PATH.fullmatch(place)]
    # A file that follows a folder is inside it.
    return [place for place in places if "/" in place] or places


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_row_of_the_map_leads_somewhere(document):
    for row in map_rows(document):
        found = paths(row)
        assert found, row
        missing = [path for path in found if not any(any(room.glob(path.rstrip("/"))) for room in ROOMS)]
        assert missing == [], row


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_and_make_target_exists(document):
    text = (ROOT / document).read_text()
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("https:")]
    assert [link for link in links if not (ROOT / link).exists()] == []
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z0-9-]+)", text)) - targets == set()


MODULES = [path for top in ("src", "devcluster", "scripts", "bench") for path in (ROOT / top).rglob("*.py")]
MOST_LINES, MOST_MODULES = 500, 15


def test_no_module_and_no_package_is_too_large_to_be_read():
    assert len(MODULES) > 200
    assert [path for path in MODULES if len(path.read_text().splitlines()) > MOST_LINES] == []
    packages = Counter(path.parent for path in MODULES)
    assert {str(package): count for package, count in packages.items() if count > MOST_MODULES} == {}
