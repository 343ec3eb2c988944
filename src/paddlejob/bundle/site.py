"""The documentation as pages that a browser reads without a server and without a network."""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from markdown_it.token import Token

INDEX, CHINESE_INDEX = "README.md", "README.zh-CN.md"
_LINK = re.compile(r"^(?:## (?P<section>.+)|\d+\. \[(?P<title>[^\]]+)\]\((?P<path>[^)#]+)\))$", re.MULTILINE)
_WIDE = re.compile(r"[\u3000-\u9fff\uff00-\uffef]")
"""Chinese characters and their punctuation."""
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; display: flex; }
nav { flex: 0 0 19rem; height: 100vh; overflow: auto; position: sticky; top: 0; padding: 1rem;
  font-size: 14px; border-right: 1px solid var(--line); box-sizing: border-box; }
nav a { display: block; padding: .2rem .4rem; color: inherit; text-decoration: none; border-radius: 4px; }
nav h2 { font-size: 12px; margin: 1rem .4rem .2rem; opacity: .7; }
nav a:hover, nav a[aria-current] { background: var(--soft); }
main { flex: 1; min-width: 0; max-width: 60rem; padding: 1rem 2rem 6rem; }
pre { background: var(--soft); padding: .8rem; overflow: auto; border-radius: 6px;
  font-size: 13px; line-height: 1.45; }
code { font: 13px/1.45 ui-monospace, monospace; }
table { border-collapse: collapse; display: block; overflow: auto; }
td, th { border: 1px solid var(--line); padding: .3rem .6rem; vertical-align: top; text-align: left; }
th:empty { padding: 0; border: 0; }
img { max-width: 100%; }
:target { background: #fd07; }
@media (max-width: 60rem) { body { flex-direction: column-reverse; }
  nav { flex: none; height: auto; position: static; border: 0; }
  main { width: 100%; box-sizing: border-box; } }
"""
_PAGE = """<!doctype html>
<html lang="{language}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{style}</style>
<nav>{navigation}</nav><main>
{body}</main></html>
"""


class Entry(NamedTuple):
    """A page in the order of the documentation."""

    title: str
    path: str
    section: str = ""


def entries(docs: Traversable, index: str = INDEX) -> list[Entry]:
    """Return the pages in the order of the index."""
    found, section = [], ""
    for line in _LINK.finditer(docs.joinpath(index).read_text()):
        section = line["section"] or section
        if line["path"]:
            found.append(Entry(line["title"], line["path"], section))
    return found


def write_site(docs: Traversable, target: Path) -> Path:
    """Write all pages to a folder that does not exist, and return the first one. Raises OSError."""
    target.mkdir(parents=True)
    known = {path for path, _ in _files(docs)}
    for path, file in _files(docs):
        place = target / _page_name(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            place.write_text(_page(docs, path, file.read_text(), known))
        else:
            place.write_bytes(file.read_bytes())
    return target / _page_name(INDEX)


def _files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.is_dir():
            yield from _files(each, f"{prefix}{each.name}/")
        else:
            yield f"{prefix}{each.name}", each


def _page_name(path: str) -> str:
    return (
        re.sub(r"README(\.zh-CN)?\.md$", r"index\1.html", path)
        if "README" in path
        else re.sub(r"\.md$", ".html", path)
    )


def _page(docs: Traversable, path: str, text: str, known: set[str]) -> str:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - comes with rich, and only this needs it

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
    _add_anchors(tokens)
    for token in tokens:
        _rewrite_links(token, path, known)
        _join_chinese_lines(token)
    is_chinese = path.endswith(".zh-CN.md")
    index = CHINESE_INDEX if is_chinese else INDEX
    title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), path)
    return _PAGE.format(
        language="zh-CN" if is_chinese else "en",
        title=html.escape(title.replace("`", "")),
        style=_STYLE,
        navigation="".join(_navigation(docs, index, path, known)),
        body=parser.renderer.render(tokens, parser.options, {}),
    )


def _navigation(docs: Traversable, index: str, path: str, known: set[str]) -> Iterator[str]:
    twin = path.replace(".zh-CN.md", ".md") if ".zh-CN" in path else path.replace(".md", ".zh-CN.md")
    if twin in known:
        language = "English" if ".zh-CN" in path else "简体中文"
        yield f'<a href="{_relative(_page_name(twin), path)}">{language}</a>\n'
    section = ""
    for entry in (Entry("paddlejob", index), *entries(docs, index)):
        if entry.section != section:
            section = entry.section
            yield f"<h2>{html.escape(section)}</h2>\n"
        current = ' aria-current="page"' if entry.path == path else ""
        title = html.escape(entry.title.replace("`", ""))
        yield f'<a href="{_relative(_page_name(entry.path), path)}"{current}>{title}</a>\n'


def _add_anchors(tokens: list[Token]) -> None:
    """Name headings as code hosts do, and rows of tables by each code in their first cell, as of a reason."""
    taken: set[str] = set()
    for position, token in enumerate(tokens):
        if token.type == "heading_open":
            if (name := slug(tokens[position + 1].content)) not in taken:
                taken.add(name)
                token.attrSet("id", name)
        elif token.type == "td_open" and tokens[position - 1].type == "tr_open":
            for code in tokens[position + 1].children or ():
                if code.type == "code_inline" and code.content not in taken:
                    taken.add(code.content)
                    code.attrSet("id", code.content)


def _join_chinese_lines(token: Token) -> None:
    """Drop line breaks between Chinese characters, which a browser would show as spaces."""
    children = token.children or []
    for before, each, after in zip(children, children[1:], children[2:], strict=False):
        if each.type == "softbreak" and _WIDE.match(before.content[-1:]) and _WIDE.match(after.content[:1]):
            each.type, each.content = "text", ""


def slug(heading: str) -> str:
    """Return the anchor of a heading, as links in the documents write it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def _rewrite_links(token: Token, path: str, known: set[str]) -> None:
    """Let links lead to pages of the site; those to files that are not in it lose their target."""
    for child in token.children or ():
        href = str(child.attrGet("href") or "")
        if child.type != "link_open" or not href or re.match(r"[a-z]+:|#", href):
            continue
        file, _, fragment = href.partition("#")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
        if place in known:
            child.attrSet("href", _relative(_page_name(place), path) + (f"#{fragment}" if fragment else ""))
        else:
            del child.attrs["href"]


def _relative(target: str, path: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(path) or ".")
