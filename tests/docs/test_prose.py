"""Docstrings, comments and pages keep to plain English: scripts/prose.py counts the phrases that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import prose


@pytest.mark.parametrize("package", prose.sources())
def test_docstrings_and_comments_are_plain_english(package):
    assert prose.rate(prose.sources()[package]) <= prose.LIMITS["src"]


@pytest.mark.parametrize("pages", prose.documents())
def test_pages_are_plain_english(pages):
    assert prose.rate(prose.documents()[pages]) <= prose.LIMITS["docs"]


def test_phrases_are_found_in_docstrings_comments_and_pages(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text('"""Tell what is."""\n\nwhat = "who"  # nobody knows\n')
    assert [prose.PHRASES.findall(text) for _, text in prose.sentences(module)] == [
        ["Tell", "what"],
        ["nobody"],
    ]
    page = tmp_path / "page.md"
    page.write_text("Run `what`:\n\n```shell\nwhat\n```\n\nIt goes on.\n")
    assert [number for number, text in prose.sentences(page) if prose.PHRASES.findall(text)] == [7]
    assert prose.rate([page]) == 200
