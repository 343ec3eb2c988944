"""The documents name every cause, in both languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.explain import test_no_room, test_not_started, test_states

DOCS = Path(__file__).parents[3] / "docs"
CASES = (*test_no_room.CASES.values(), *test_not_started.CASES.values())
CAUSES = {case.cause for case in CASES} | {cause for _, cause, _ in test_states.STATES.values()}


@pytest.mark.parametrize("name", ["explain.md", "explain.zh-CN.md"])
def test_every_cause_is_documented(name):
    text = (DOCS / name).read_text()
    assert [cause for cause in sorted(CAUSES) if f"`{cause}`" not in text] == []


def test_the_languages_list_the_same_causes():
    tables = [
        [line.partition("|")[2].partition("|")[0].replace("、", ", ").split("`")[1::2] for line in rows(name)]
        for name in ("explain.md", "explain.zh-CN.md")
    ]
    assert tables[0] == tables[1]


def rows(name: str) -> list[str]:
    return [line for line in (DOCS / name).read_text().splitlines() if line.startswith("| `")]
