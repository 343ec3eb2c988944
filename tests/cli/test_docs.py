"""The documentation that the package carries: complete, in one order, and without a dead link."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

from paddlejob.api import names
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase
from paddlejob.cli.main import main
from paddlejob.cli.setup import docs

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
INDEXES = {docs.INDEX, docs.CHINESE_INDEX}


def test_the_index_has_every_page_once():
    listed = [entry.path for entry in docs.entries(DOCS)]
    assert sorted(listed) == sorted(each for each in PAGES - INDEXES if "zh-CN" not in each)


def test_the_chinese_index_has_the_same_pages_in_the_same_order():
    english = [entry.path for entry in docs.entries(DOCS) if not entry.path.startswith("decisions/")]
    chinese = [entry.path for entry in docs.entries(DOCS, docs.CHINESE_INDEX)]
    translated = [each.replace(".md", ".zh-CN.md") for each in english]
    assert chinese == [
        ours if ours in PAGES else each for ours, each in zip(translated, english, strict=True)
    ]


ENGLISH_ONLY = {"architecture.md", "local-internals.md", "proof.md"}
"""How it works is for those who change the code, who read English there too."""


def test_every_page_for_users_is_there_in_chinese():
    english = {each for each in PAGES if "zh-CN" not in each and not each.startswith("decisions/")}
    missing = {each for each in english if each.replace(".md", ".zh-CN.md") not in PAGES}
    assert missing <= ENGLISH_ONLY


@pytest.mark.parametrize("page", sorted(each for each in PAGES if "zh-CN" in each))
def test_a_translation_says_what_the_original_says(page):
    """As far as that can be seen: headings, blocks of code, tables, lists and links, one for one."""
    assert shape(page) == shape(page.replace(".zh-CN", ""))


def shape(page: str) -> dict[str, object]:
    text = (DOCS / page).read_text()
    if page.startswith("README"):
        # Decisions are written in English only.
        text = re.sub(r"^## Decisions\n|^.*\]\(decisions/.*\n", "", text, flags=re.MULTILINE)
    blocks = re.findall(r"^ *```(\w+)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#]+)", prose)
    return {
        "headings": [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)],
        # Drawings and remarks behind a command may be in either language.
        "blocks": [
            (kind, block.count("\n") if kind == "text" else re.sub(r"\s+#.*", "", block))
            for kind, block in blocks
        ],
        "tables": len(re.findall(r"^\|", prose, re.MULTILINE)),
        "first cells": sorted(re.findall(r"^\| (`[^`]+`) \|", prose, re.MULTILINE)),
        "items": len(re.findall(r"^(?:- |\d+\. )", prose, re.MULTILINE)),
        "links": sorted({link.replace(".zh-CN", "") for link in links}),
    }


def test_links_of_chinese_pages_lead_to_chinese_pages():
    for page in (each for each in PAGES if "zh-CN" in each):
        text = (DOCS / page).read_text()
        for label, link in re.findall(r"\[([^\]]*)\]\(((?!https?:)[^)#]+\.md)", text):
            twin = (DOCS / page).parent / link.replace(".md", ".zh-CN.md")
            assert label == "English" or ".zh-CN" in link or not twin.exists(), f"{page}: {link}"


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as code hosts name them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def test_no_link_between_the_pages_is_dead():
    checked = 0
    for page in PAGES:
        path = DOCS / page
        prose = re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(((?!https?:)[^)]+)\)", prose):
            file, _, fragment = unquote(link).partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), f"{page}: {link}"
            if fragment:
                assert fragment in anchors(target.read_text()), f"{page}: {link}"
            checked += 1
    assert checked > len(PAGES)


@pytest.mark.parametrize("page", ["reference/status.md", "reference/status.zh-CN.md"])
def test_every_reason_label_and_phase_is_in_a_table(page):
    cells = " ".join(re.findall(r"^\| ([^|]+)\|", (DOCS / page).read_text(), re.MULTILINE))
    reasons = {value for name, value in vars(Reason).items() if name.isupper()}
    labels = {value for name, value in vars(names).items() if name.startswith("LABEL_")}
    known = reasons | labels | {str(phase) for phase in Phase if phase}
    assert sorted(each for each in known if f"`{each}`" not in cells) == []


def test_a_page_is_shown_and_pages_are_listed():
    run = lambda *arguments: CliRunner().invoke(main, ["docs", *arguments])  # noqa: E731
    assert run().stdout.splitlines()[0] == "first-job                   Your first job"
    assert run("local").stdout == (DOCS / "local.md").read_text()
    assert run("local", "--zh").stdout == (DOCS / "local.zh-CN.md").read_text()
    missing = run("nothing")
    assert (missing.exit_code, missing.stderr) == (
        2,
        "error: there is no page nothing; `paddlejob docs` lists them\n",
    )


def test_all_pages_are_written_to_a_new_folder(tmp_path):
    folder = tmp_path / "docs"
    assert CliRunner().invoke(main, ["docs", "--to", str(folder)]).stdout == f"wrote {folder}/README.md\n"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.md")} == PAGES
    refused = CliRunner().invoke(main, ["docs", "--to", str(folder)])
    assert (refused.exit_code, refused.stderr) == (2, f"error: cannot write {folder}: File exists\n")
