"""docs/proof.md: each of its sections is written by the command that has measured it."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "proof.md"


def write_section(command: str, text: str, page: Path = PAGE) -> None:
    """Put in place what a command has found, and when; the sections of other commands stay as they are."""
    begin, end = f"<!-- written by `{command}` -->", f"<!-- end of `{command}` -->"
    place = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    old = page.read_text()
    if not place.search(old):
        raise ValueError(f"{page} has no place for what `{command}` writes")
    page.write_text(place.sub(lambda _: f"{begin}\n{text.strip()}\n\n{_when(command)}\n{end}", old))


def _when(command: str) -> str:
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    return f"*`{command}`, {datetime.now(UTC):%Y-%m-%d}, commit {commit}, {os.cpu_count()} cores.*"


def table(heading: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return rows as Markdown, figures to the right."""
    rule = "|---|" + "--:|" * (len(heading) - 1)
    lines = [f"| {' | '.join(cells)} |" for cells in (heading, *rows)]
    return "\n".join((lines[0], rule, *lines[1:]))
