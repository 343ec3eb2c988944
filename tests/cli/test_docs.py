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
from paddlejob.bundle import site
from paddlejob.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
INDEXES = {site.INDEX, site.CHINESE_INDEX}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "html"
    assert CliRunner().invoke(main, ["docs", "--html", str(folder)]).stdout == f"wrote {folder}/index.html\n"
    return folder


def test_the_index_has_every_page_once():
    listed = [entry.path for entry in site.entries(DOCS)]
    assert sorted(listed) == sorted(each for each in PAGES - INDEXES if "zh-CN" not in each)


def test_the_chinese_index_has_the_same_pages_in_the_same_order():
    english = [entry.path for entry in site.entries(DOCS) if not entry.path.startswith("decisions/")]
    chinese = [entry.path for entry in site.entries(DOCS, site.CHINESE_INDEX)]
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


def test_no_link_of_the_site_is_dead(written):
    pages = {path: path.read_text() for path in written.rglob("*.html")}
    assert len(pages) == len(PAGES)
    checked = 0
    for path, text in pages.items():
        for kind, link in re.findall(r'(href|src)="([^"]*)"', text):
            if link.startswith("https:"):
                continue
            file, _, fragment = unquote(link).partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), f"{path.name}: {kind} {link}"
            if fragment:
                assert f'id="{fragment}"' in pages[target], f"{path.name}: {link}"
            checked += 1
    assert checked > len(PAGES) ** 2 / 3


@pytest.mark.parametrize("page", ["reference/status.html", "reference/status.zh-CN.html"])
def test_every_reason_label_and_condition_has_an_anchor(written, page):
    text = (written / page).read_text()
    reasons = {value for name, value in vars(Reason).items() if name.isupper()}
    labels = {value for name, value in vars(names).items() if name.startswith("LABEL_")}
    known = reasons | labels | {str(phase) for phase in Phase if phase}
    assert sorted(each for each in known if f'id="{each}"' not in text) == []


def test_lines_of_chinese_are_joined_without_a_space(written):
    spaced = re.compile(r"[\u4e00-\u9fff，。：；、]\n[\u4e00-\u9fff]")
    for path in written.rglob("*.zh-CN.html"):
        prose = re.sub(r"<pre>.*?</pre>", "", path.read_text(), flags=re.DOTALL)
        assert not spaced.search(prose), path


def test_nothing_is_fetched_from_elsewhere(written):
    for path in written.rglob("*.html"):
        assert not re.search(r'<script|<link|src="https?:|@import', path.read_text()), path


def test_a_page_is_shown_and_pages_are_listed():
    run = lambda *arguments: CliRunner().invoke(main, ["docs", *arguments])  # noqa: E731
    assert run().stdout.splitlines()[0] == "first-job                  Your first job"
    assert run("local").stdout == (DOCS / "local.md").read_text()
    assert run("local", "--zh").stdout == (DOCS / "local.zh-CN.md").read_text()
    missing = run("nothing")
    assert (missing.exit_code, missing.stderr) == (
        2,
        "paddlejob: there is no page nothing; `paddlejob docs` lists them\n",
    )


def test_a_folder_that_exists_is_left_alone(tmp_path):
    refused = CliRunner().invoke(main, ["docs", "--html", str(tmp_path)])
    assert (refused.exit_code, refused.stderr) == (2, f"paddlejob: cannot write {tmp_path}: File exists\n")
