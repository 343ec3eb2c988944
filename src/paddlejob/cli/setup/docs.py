"""`docs`: show the documentation of this version, offline."""

from __future__ import annotations

import re
import sys
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

import click

from paddlejob import bundle
from paddlejob.cli import output, shared
from paddlejob.cli.terminal import say
from paddlejob.client.errors import ClientError

INDEX, CHINESE_INDEX = "README.md", "README.zh-CN.md"
_LINK = re.compile(r"^\d+\. \[(?P<title>[^\]]+)\]\((?P<path>[^)#]+)\)$", re.MULTILINE)


class Entry(NamedTuple):
    """A page of the documentation."""

    title: str
    path: str


def entries(docs: Traversable, index: str = INDEX) -> list[Entry]:
    """Return the pages in the order of the index."""
    return [Entry(**found.groupdict()) for found in _LINK.finditer(docs.joinpath(index).read_text())]


@click.command("docs")
@click.argument("page", default="")
@click.option("--chinese", "--zh", is_flag=True, help="Show the Chinese page if there is one.")
@click.option(
    "--to", "folder", type=click.Path(path_type=Path), help="Write all pages to this new folder, as Markdown."
)
def command(page: str, chinese: bool, folder: Path | None) -> None:
    """List the pages of the documentation, or show PAGE, such as `local` or `install`."""
    docs = bundle.folder(bundle.DOCS)
    with shared.errors_shown():
        if folder:
            _write(docs, folder)
            return
        index = CHINESE_INDEX if chinese else INDEX
        pages = {_short(each.path): each for each in entries(docs, index)}
        if not page:
            say(output.table([(name, each.title) for name, each in pages.items()]))
            return
        if page not in pages:
            raise ClientError(f"there is no page {page}; `paddlejob docs` lists them")
        _show(docs.joinpath(pages[page].path).read_text())


def _short(path: str) -> str:
    return path.removesuffix(".md").removesuffix(".zh-CN").rpartition("/")[2]


def _write(docs: Traversable, folder: Path) -> None:
    try:
        bundle.write(docs, folder)
    except OSError as error:
        raise ClientError(f"cannot write {folder}: {error.strerror}") from error
    say(f"wrote {folder / INDEX}")


def _show(text: str) -> None:
    """Show a page in a pager at a terminal, and print its Markdown elsewhere."""
    if not sys.stdout.isatty():
        say(text, nl=False)
        return
    from rich.console import Console  # noqa: PLC0415 - rich takes long to import
    from rich.markdown import Markdown  # noqa: PLC0415

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))
