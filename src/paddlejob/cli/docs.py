"""`paddlejob docs`: the documentation of this version, offline."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from paddlejob import bundle
from paddlejob.bundle import site
from paddlejob.cli.local import shared
from paddlejob.cli.terminal import say
from paddlejob.local.errors import InputError


@click.command("docs")
@click.argument("page", default="")
@click.option("--chinese", "--zh", is_flag=True, help="Chinese pages, where there are some.")
@click.option(
    "--html", "folder", type=click.Path(path_type=Path), help="Write all pages to this folder, as HTML."
)
@click.option("--open", "-o", "is_opened", is_flag=True, help="Show the pages in a browser.")
def command(page: str, chinese: bool, folder: Path | None, is_opened: bool) -> None:
    """List the pages of the documentation, or show PAGE, such as `local` or `install`."""
    docs = bundle.folder(bundle.DOCS)
    with shared.errors_shown():
        if folder or is_opened:
            _write(folder, is_opened=is_opened)
            return
        index = site.CHINESE_INDEX if chinese else site.INDEX
        pages = {_short(each.path): each for each in site.entries(docs, index)}
        if not page:
            width = max(map(len, pages))
            for name, each in pages.items():
                say(f"{name.ljust(width)}  {each.title}")
            return
        if page not in pages:
            raise InputError(f"there is no page {page}; `paddlejob docs` lists them")
        _show(docs.joinpath(pages[page].path).read_text())


def _short(path: str) -> str:
    return path.removesuffix(".md").removesuffix(".zh-CN").rpartition("/")[2]


def _write(folder: Path | None, *, is_opened: bool) -> None:
    place = folder or Path(tempfile.mkdtemp(prefix="paddlejob-docs-")) / "site"
    try:
        first = site.write_site(bundle.folder(bundle.DOCS), place)
    except OSError as error:
        raise InputError(f"cannot write {place}: {error.strerror}") from error
    say(f"wrote {first}")
    if is_opened:
        click.launch(first.resolve().as_uri())


def _show(text: str) -> None:
    """Show a page with a pager at a terminal, and as it is elsewhere."""
    if not sys.stdout.isatty():
        say(text, nl=False)
        return
    from rich.console import Console  # noqa: PLC0415 - not needed for help
    from rich.markdown import Markdown  # noqa: PLC0415

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))
