"""docs/proof.md: each of its sections is written by the command that has measured it."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "proof.md"


def write_section(command: str, text: str, page: Path = PAGE) -> None:
    """Put in place what a command has to say; the sections of other commands stay as they are."""
    begin, end = f"<!-- written by `{command}` -->", f"<!-- end of `{command}` -->"
    place = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    old = page.read_text()
    if not place.search(old):
        raise ValueError(f"{page} has no place for what `{command}` writes")
    page.write_text(place.sub(lambda _: f"{begin}\n{text.strip()}\n{end}", old))


def table(heading: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return rows as Markdown, figures to the right."""
    rule = "|---|" + "--:|" * (len(heading) - 1)
    lines = [f"| {' | '.join(cells)} |" for cells in (heading, *rows)]
    return "\n".join((lines[0], rule, *lines[1:]))
