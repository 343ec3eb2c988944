"""The documentation that the package carries: complete, in one order, and without a dead link."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

from paddlejob.api.names import Reason
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


@pytest.mark.parametrize("page", sorted(each for each in PAGES - INDEXES if "zh-CN" in each))
def test_a_translation_shows_the_same_commands(page):
    def commands(name: str) -> list[str]:
        blocks = re.findall(r"^```bash\n(.*?)^```", (DOCS / name).read_text(), re.MULTILINE | re.DOTALL)
        # A remark behind a command may be in either language.
        return [re.sub(r"\s+#.*", "", line) for block in blocks for line in block.splitlines()]

    assert commands(page) == commands(page.replace(".zh-CN", ""))


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


def test_every_reason_that_the_guide_explains_has_an_anchor(written):
    text = (written / "install.html").read_text()
    explained = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "install.md").read_text(), re.MULTILINE))
    reasons = explained & {value for name, value in vars(Reason).items() if name.isupper()}
    assert len(reasons) > 20
    assert [each for each in reasons if f'id="{each}"' not in text] == []


def test_nothing_is_fetched_from_elsewhere(written):
    for path in written.rglob("*.html"):
        assert not re.search(r'<script|<link|src="https?:|@import', path.read_text()), path


def test_a_page_is_shown_and_pages_are_listed():
    run = lambda *arguments: CliRunner().invoke(main, ["docs", *arguments])  # noqa: E731
    assert run().stdout.splitlines()[0] == "local                      Your first job, on one machine"
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
