"""Counts phrases that make a sentence hard to read, per 1,000 words of docstrings, comments and Markdown.

    python3 scripts/prose.py                  the rate of every package and of the documentation
    python3 scripts/prose.py --lines PATH...  every sentence with such a phrase

A phrase is a hint: "where" for "if" is bad English, "the directory where" is not. `tests/docs/test_prose.py`
fails above the limits below.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PHRASES = re.compile(
    r"\b(?:"
    r"what|who|whose|whom|where"  # a clause in place of the technical noun
    r"|nobody|somebody|whoever|whatever|whichever"
    r"|tells?|says?|told|said"  # programs return, report and print
    r"|at once|so many|so much|of (?:its|our|their) own|as far as"
    r"|beside|beforehand|meanwhile|nevertheless|thereby|hence"
    r"|go(?:es)? on|went on|under way|becomes? of|became of|came of|no more|any more|any longer"
    r"|that of|those of|anew|for ever"
    r")\b|, for (?:it|they|the|there|nobody|a)\b",
    re.IGNORECASE,
)
LIMITS = {"src": 5, "docs": 6}
"""The highest allowed rate of a package of the source, and of the documentation."""


def sources() -> dict[str, list[Path]]:
    """Return the packages of the source with their files."""
    packages: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "src/paddlejob").rglob("*.py")):
        name = path.relative_to(ROOT / "src").parts[1]
        packages.setdefault("paddlejob" if name.endswith(".py") else f"paddlejob/{name}", []).append(path)
    for name in ("simkube", "devcluster", "bench", "tests/chaos", "tests/simulator"):
        packages[name] = sorted((ROOT / name).rglob("*.py"))
    return packages


def documents() -> dict[str, list[Path]]:
    """Return the English pages: those in docs, and those at the top."""
    pages = {"docs": sorted((ROOT / "docs").rglob("*.md")), "README.md and others": sorted(ROOT.glob("*.md"))}
    return {name: [page for page in found if ".zh-CN" not in page.name] for name, found in pages.items()}


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of the docstrings and comments of a Python file, or of a page outside its code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        prose = re.sub(
            r"^ *```.*?^ *```",
            lambda block: "\n" * block[0].count("\n"),
            text,
            flags=re.DOTALL | re.MULTILINE,
        )
        yield from enumerate((re.sub(r"`[^`]*`", "", line) for line in prose.splitlines()), 1)
        return
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def rate(paths: list[Path]) -> float:
    """Return the number of phrases per 1,000 words."""
    texts = [text for path in paths for _, text in sentences(path)]
    words = sum(len(text.split()) for text in texts)
    return 1000 * sum(len(PHRASES.findall(text)) for text in texts) / max(1, words)


def show_lines(roots: list[Path]) -> None:
    """Print every sentence with a phrase."""
    for root in roots:
        for path in [root] if root.is_file() else sorted({*root.rglob("*.py"), *root.rglob("*.md")}):
            for number, text in sentences(path):
                if ".zh-CN" not in path.name and (found := PHRASES.findall(text)):
                    print(f"{path}:{number}: [{', '.join(found)}] {' '.join(text.split())[:160]}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--lines"]:
        show_lines([Path(each) for each in sys.argv[2:]])
    else:
        for name, paths in {**sources(), **documents()}.items():
            print(f"{rate(paths):6.1f}  {name}")
