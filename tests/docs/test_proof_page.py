"""The sections of docs/proof.md are written one by one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.proof_page import PAGE, table, write_section


def test_a_command_replaces_its_own_section_only(tmp_path: Path) -> None:
    page = tmp_path / "proof.md"
    page.write_text(
        "before\n<!-- written by `a` -->\n<!-- end of `a` -->\n"
        "<!-- written by `b` -->\nkept\n<!-- end of `b` -->\n"
    )
    for text in ("first", "second \\1"):
        write_section("a", text, page)
    lines = page.read_text().splitlines()
    assert lines[:4] == ["before", "<!-- written by `a` -->", "second \\1", ""]
    assert re.fullmatch(r"\*`a`, \d{4}-\d\d-\d\d, commit \S+, \d+ cores\.\*", lines[4])
    assert lines[5:] == ["<!-- end of `a` -->", "<!-- written by `b` -->", "kept", "<!-- end of `b` -->"]


def test_a_command_without_a_place_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "proof.md"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="has no place for what `make proof` writes"):
        write_section("make proof", "text", page)


@pytest.mark.parametrize(
    "command",
    [
        "make proof",
        "make chaos",
        "make bench",
        "make bench-recovery",
        *(f"bench/scale.py {part}" for part in ("size", "fairness", "churn")),
    ],
)
def test_every_command_has_written_its_section(command: str) -> None:
    written = PAGE.read_text().partition(f"<!-- written by `{command}` -->\n")[2].partition("<!-- end of")[0]
    assert "|" in written


def test_figures_stand_to_the_right() -> None:
    assert table(("what", "ms"), [("a", "1"), ("b", "2")]) == "| what | ms |\n|---|--:|\n| a | 1 |\n| b | 2 |"
