"""No command of the documentation is left out: tests run it, or it is listed with the reason."""

from __future__ import annotations

import re

import pytest

from docs.blocks import (
    ENGLISH,
    LANGUAGES,
    NOT_RUN,
    PAGES,
    ROOT,
    RUN_ELSEWHERE,
    blocks,
    matches,
)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page):
    text = (ROOT / page).read_text()
    assert {block.language for block in blocks(page)} <= set(LANGUAGES)
    # A command in an indented block, or in a fence that nothing parses, would not be found.
    outside = re.sub(r"^( *)```\w+\n.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "```" not in outside
    assert re.findall(r"\n\n {4,}\$? ?(?:make|paddlejob|kubectl|helm|docker|pip|python3?) .*", outside) == []


def test_what_is_not_run_is_in_the_documentation():
    lines = [line for page in ENGLISH for block in blocks(page) for line in block.text.splitlines()]
    assert [
        each for each in NOT_RUN if not any(line.removeprefix("$ ").startswith(each) for line in lines)
    ] == []


def test_where_else_commands_are_run_exists():
    named = [
        *RUN_ELSEWHERE.values(),
        *re.findall(r"(?:tests|devcluster)/[\w/]+\.py", " ".join(NOT_RUN.values())),
    ]
    assert [each for each in named if not (ROOT / each).exists()] == []
    for page, test in RUN_ELSEWHERE.items():
        assert page.rpartition("/")[2] in (ROOT / test).read_text()


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("job Completed in 41.2 s: done", "job Completed in 0.7 s: done\n"),
        ("NAME   AGE\nx      12s", "NAME                 AGE\nx                    1m3s  \n"),
        ("...\nwrote mnist-g679j", "note: a\nwrote mnist-x7k2p"),
        ("first\n...", "first\nsecond\nthird"),
    ],
)
def test_times_names_and_columns_may_differ(shown, printed):
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("2/2   0/2", "2/2   1/2"),
        ("worker-0 | epoch 1", "worker-1 | epoch 1"),
        ("Completed", "Completed\nand more"),
        ("a.b", "aXb"),
    ],
)
def test_nothing_else_may_differ(shown, printed):
    assert not matches(shown, printed)
